"""One object's trouble stays its own: whatever is raised about it ends here.

A loop over objects of other people goes through a fence, each object by itself: what is raised is
counted, told once, and the loop goes on to the next object.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Generator
from typing import Literal, TypeAlias

import structlog

from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import metrics

from . import errors

Stage = Literal["decode", "observe", "decide", "stop", "report", "converge"]
"""What was being done about the object."""
Subject: TypeAlias = types.Object | Callable[[], types.Object]
"""An object, or what finds out which one it is when that is asked for."""
Tell = Callable[[types.Object, str], None]
"""Tells the people who own an object, once, that it can't be dealt with, and why."""

REMEMBERED = 4096
"""Objects whose trouble has been told, so that one that is written again and again is told once;
some 200 bytes each."""
LONGEST = 300
"""Characters of an error that are worth repeating: it may quote what the object holds."""

log = structlog.get_logger(__name__)


class Fence:
    """Keeps what is raised about one object from the others."""

    def __init__(self, tell: Tell | None = None) -> None:
        self._tell = tell
        self._told: dict[tuple[str, str, str], None] = {}

    @contextlib.contextmanager
    def around(self, stage: Stage, subject: Subject) -> Generator[None]:
        """End, and never pass on, whatever is raised inside.

        Errors of the connection pass: they are about no object.
        """
        try:
            yield
        except errors.KubeError:
            raise
        # All errors, because the objects of other teams can cause any of them.
        except Exception as error:
            self._caught(stage, subject, error)

    def _caught(self, stage: Stage, subject: Subject, error: Exception) -> None:
        item = types.Object()
        # An object without a readable name is counted without one.
        with contextlib.suppress(Exception):
            item = subject if isinstance(subject, types.Object) else subject()
        kind, meta = type(item).__name__, item.metadata
        metrics.BROKEN.labels(stage, kind).inc()
        key = (stage, kind, meta.uid or f"{meta.namespace}/{meta.name}")
        is_told = key in self._told
        self._told.pop(key, None)
        self._told[key] = None
        if len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]
        if is_told:
            return
        why = f"{type(error).__name__}: {error}"[:LONGEST]
        frame = traceback.extract_tb(error.__traceback__)[-1]
        log.warning(
            "object can't be dealt with",
            stage=stage,
            kind=kind,
            namespace=meta.namespace or "",
            name=meta.name or "not known",
            error=why,
            at=f"{frame.filename.rpartition('/')[2]}:{frame.lineno}",
        )
        if meta.uid and self._tell:
            self._tell(item, why)
