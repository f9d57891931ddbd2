"""What has to outlive the process: rounds under way, guards, and what was asked for by hand."""

from __future__ import annotations

import msgspec


class Round(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pod of a workload that we replace; the workload's slot is held until it is over."""

    pod: str
    uid: str
    known: tuple[str, ...]
    """UIDs of the workload's pods before; another one is a replacement."""
    was_ready: bool
    """The pod was Ready: we owe the workload a Ready one."""
    ready_before: int
    since: float
    """Seconds since the epoch."""
    fingerprint: str = ""


class Guard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a workload is left alone until something about it, or about the mesh, changes."""

    reason: str
    message: str
    since: float
    revision: str = ""
    """Of the workload's pod template."""
    fingerprint: str = ""
    until: float | None = None
    """When to look again; None: not by itself."""


class Pause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a workload has to wait, such as a PodDisruptionBudget that allows nothing now."""

    reason: str
    message: str
    until: float


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Pods that somebody asked to have replaced."""

    id: str
    at: float
    uids: tuple[str, ...]
    force: bool = False
    """They are evicted although a dry run shows that their replacements would be refused."""


class Pace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How fast pods are being replaced, from the first eviction until none is to be replaced."""

    since: float
    """Seconds since the epoch."""
    done: int = 0
    """Replacements that are over."""
    latest: float = 0
    """When the last of them was."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of it."""

    rounds: dict[str, Round] = {}
    guards: dict[str, Guard] = {}
    pauses: dict[str, Pause] = {}
    settled: bool | None = None
    """The model had been settled long before us when we first looked; None: nothing to decide."""
    request: Request | None = None
    """The one being worked on."""
    answered: str = ""
    """The id of the last request that was taken over."""
    pace: Pace | None = None


STATE = "state"
REQUEST = "request"


def decode(data: dict[str, str]) -> Memory:
    """Return what the ConfigMap's data remembers; what can't be read is forgotten."""
    try:
        memory = msgspec.json.decode(data.get(STATE, "{}"), type=Memory)
    except (msgspec.MsgspecError, RecursionError):
        memory = Memory()
    try:
        request = msgspec.json.decode(data.get(REQUEST, "null"), type=Request | None)
    except (msgspec.MsgspecError, RecursionError):
        request = None
    if request is None or request.id == memory.answered:
        return memory
    return msgspec.structs.replace(memory, request=request, answered=request.id)


def encode(memory: Memory) -> str:
    """Return the text that `decode` finds under `STATE`."""
    return msgspec.json.encode(memory, order="sorted").decode()
