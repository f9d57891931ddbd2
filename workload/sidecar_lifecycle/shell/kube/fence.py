"""Isolation of errors: an object that can't be processed does not stop the others.

A loop over objects of other teams processes each object inside a fence. An exception is counted
and logged once per object, and the loop continues with the next object.
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
"""The step of processing that failed."""
Subject: TypeAlias = types.Object | Callable[[], types.Object]
"""An object, or a function that identifies it on demand."""
Tell = Callable[[types.Object, str], None]
"""Called once per object to report the error to the owner of the object."""

REMEMBERED = 4096
"""Number of reported objects to remember, so that an object that is updated often is reported
once; about 200 bytes each."""
LONGEST = 300
"""Limit for the text of an error in characters: it may quote a large part of the object."""

log = structlog.get_logger(__name__)


class Fence:
    """Catches exceptions about one object, so that the others are still processed."""

    def __init__(self, tell: Tell | None = None) -> None:
        self._tell = tell
        self._told: dict[tuple[str, str, str], None] = {}

    @contextlib.contextmanager
    def isolate(self, stage: Stage, subject: Subject) -> Generator[None]:
        """Catch, count and log every exception of the block.

        Errors of the connection are raised, because they do not concern one object.
        """
        try:
            yield
        except errors.KubeError:
            raise
        # Every exception is caught, because objects of other teams can cause any of them.
        except Exception as error:
            self._report_error(stage, subject, error)

    def _report_error(self, stage: Stage, subject: Subject, error: Exception) -> None:
        item = types.Object()
        # If the name can't be read, the object is counted without it.
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
