"""Traces of hooks, by ops-tracing, where a collector is related.

ops makes the spans: of the event, of each tool of Juju, of each request to Pebble; the charm adds
its own. They end nowhere unless ops-tracing is there, which ops imports as it is imported itself.
That doubles the import of ops, in each hook, so it is kept away from hooks whose traces nobody
takes; whether somebody does is remembered from one hook to the next, in a file as old as the pod.
"""

from __future__ import annotations

import os
import pathlib
import ssl
import sys
from typing import Any

_PACKAGE: Any = "ops_tracing"
_OWN_HOOKS = "hooks/tracing-relation-"
"""Hooks of the relation itself are traced: their first one learns of the collector."""
_MARK = ".traces-hooks"
BUFFER = ".tracing-data.db"
"""What ops-tracing keeps that was not sent yet, up to 40 MB."""


def begin() -> None:
    """Keep ops from importing ops-tracing, unless this hook is to be traced.

    It has to be called before ops is imported, and does nothing in a process that has it already.
    """
    folder = pathlib.Path(os.environ.get("JUJU_CHARM_DIR", "."))
    is_own = os.environ.get("JUJU_DISPATCH_PATH", "").startswith(_OWN_HOOKS)
    if is_own or "ops" in sys.modules or (folder / _MARK).exists():
        return
    # An import of what is None here fails as if there were no such package.
    sys.modules[_PACKAGE] = None  # pyright: ignore[reportArgumentType]
    (folder / BUFFER).unlink(missing_ok=True)


def follow(folder: pathlib.Path, url: str, authorities: str) -> None:
    """Have the spans of this hook and of the next ones sent to a collector.

    Args:
        folder: The charm's.
        url: Of the collector, for traces; empty where there is none any more.
        authorities: Certificates, as PEM, that are trusted beside those that the system knows.
    """
    mark = folder / _MARK
    if url:
        mark.touch()
    else:
        mark.unlink(missing_ok=True)
    if tracing := sys.modules.get(_PACKAGE):
        trusted = _known() + authorities if authorities else None
        tracing.set_destination(url or None, trusted)


def _known() -> str:
    """Read the authorities that the system knows: with others ops-tracing leaves them out."""
    file = ssl.get_default_verify_paths().cafile
    return pathlib.Path(file).read_text("ascii", "ignore") if file else ""


begin()
