"""State that outlives the process: rounds in progress, holds and the operator's request."""

from __future__ import annotations

from typing import TypeVar

import msgspec

_T = TypeVar("_T")


class Round(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The replacement of one pod of a workload; it ends when the new pod is right."""

    uid: str
    """UID of the evicted pod."""
    known: tuple[str, ...]
    """UIDs of the workload's earlier pods; any other pod is a replacement."""
    was_ready: bool
    """Whether the pod was Ready: then the replacement has to be, too."""
    ready_before: int
    since: float
    """Seconds since the epoch."""
    fingerprint: str = ""
    broken: tuple[str, ...] = ()
    """Containers that were not Ready before, so that the replacement's need not be."""
    proves: str = ""
    """The proof that a right replacement gives; empty: it is already proven."""


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reason to pause a workload for a time, or until it or the mesh changes."""

    reason: str
    message: str
    since: float
    until: float | None = None
    """When to try again; None: only after a change."""
    revision: str = ""
    """Revision of the workload's pod template; another one ends the hold, unless it is empty."""
    fingerprint: str = ""
    """Fingerprint of the mesh; another one ends the hold, unless it is empty."""


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operator's request to replace pods."""

    id: str
    at: float
    uids: tuple[str, ...]
    force: bool = False
    """Whether they are evicted beside unready pods, and if a dry run is rejected."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole state."""

    rounds: dict[str, Round] = {}
    """By workload."""
    holds: dict[str, Hold] = {}
    """By workload."""
    proven: tuple[str, ...] = ()
    """Proofs by a first replacement: the mesh, and requests to restart pods in it."""
    request: Request | None = None
    """The current request."""
    answered: str = ""
    """The id of the last accepted request."""
    waiting: dict[str, float] = {}
    """Since when workloads wait for a reason that may last, in seconds since the epoch."""


STATE = "state"
REQUEST = "request"


def decode(data: dict[str, str]) -> Memory:
    """Read the ConfigMap's data; unreadable state is dropped."""
    memory = _read_entry(data, STATE, Memory) or Memory()
    request = _read_entry(data, REQUEST, Request)
    if request is None or request.id == memory.answered:
        return memory
    return msgspec.structs.replace(memory, request=request, answered=request.id)


def _read_entry(data: dict[str, str], key: str, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(data.get(key, "null"), type=kind | None)
    except (msgspec.MsgspecError, RecursionError):
        return None


def encode(memory: Memory) -> str:
    """Return the text that `decode` finds under `STATE`."""
    return msgspec.json.encode(memory, order="sorted").decode()
