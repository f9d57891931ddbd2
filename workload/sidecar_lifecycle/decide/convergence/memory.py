"""What has to outlive the process: rounds under way, holds, and what was asked for by hand."""

from __future__ import annotations

from typing import TypeVar

import msgspec

_T = TypeVar("_T")


class Round(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pod of a workload that is replaced; it is over when the replacement is right."""

    uid: str
    """Of the pod that was evicted."""
    known: tuple[str, ...]
    """UIDs of the workload's pods before; another one is a replacement."""
    was_ready: bool
    """The pod was Ready: the replacement has to be, too."""
    ready_before: int
    since: float
    """Seconds since the epoch."""
    fingerprint: str = ""
    broken: tuple[str, ...] = ()
    """Containers that were not Ready before, and need not be after."""
    proves: str = ""
    """What is proven if the replacement is right; empty: nothing that is not proven already."""


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a workload is left alone for a time, or until it or the mesh changes."""

    reason: str
    message: str
    since: float
    until: float | None = None
    """When to try again; None: not by itself."""
    revision: str = ""
    """Of the workload's pod template; another one ends the hold. Empty: none does."""
    fingerprint: str = ""
    """Of the mesh; another one ends the hold. Empty: none does."""


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Pods that an operator asked to have replaced."""

    id: str
    at: float
    uids: tuple[str, ...]
    force: bool = False
    """They are evicted although a dry run shows that their replacements would be refused."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of it."""

    rounds: dict[str, Round] = {}
    """By workload."""
    holds: dict[str, Hold] = {}
    """By workload."""
    proven: tuple[str, ...] = ()
    """What a first replacement has proven: the mesh, and requests to restart pods in it."""
    request: Request | None = None
    """The one being worked on."""
    answered: str = ""
    """The id of the last request that was taken over."""


STATE = "state"
REQUEST = "request"


def decode(data: dict[str, str]) -> Memory:
    """Return what the ConfigMap's data remembers; what can't be read is forgotten."""
    memory = _read(data, STATE, Memory) or Memory()
    request = _read(data, REQUEST, Request)
    if request is None or request.id == memory.answered:
        return memory
    return msgspec.structs.replace(memory, request=request, answered=request.id)


def _read(data: dict[str, str], key: str, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(data.get(key, "null"), type=kind | None)
    except (msgspec.MsgspecError, RecursionError):
        return None


def encode(memory: Memory) -> str:
    """Return the text that `decode` finds under `STATE`."""
    return msgspec.json.encode(memory, order="sorted").decode()
