"""The annotation in which the injector lists what it has added to a pod.

Anybody can write it, and a template that was made from the YAML of a live pod still has it.
"""

from __future__ import annotations

import msgspec

from integrator_contract import names
from sidecar_lifecycle.model import types

LONGEST_STATUS = 64 * 1024
"""Characters that are read; the injector writes some hundred."""


class Status(msgspec.Struct):
    """The fields that we read, named as the injector names them."""

    revision: str = ""
    containers: list[str] | None = None
    initContainers: list[str] | None = None  # noqa: N815 - the injector's name

    @property
    def added(self) -> set[str]:
        """The names of the containers that the injector has added, of both kinds."""
        return {*(self.containers or ()), *(self.initContainers or ())}


def read(pod: types.Pod) -> Status:
    """Return what the annotation says; nothing where it is missing or no such document."""
    text = pod.metadata.annotations.get(names.SIDECAR_STATUS, "")
    if not text or len(text) > LONGEST_STATUS:
        return Status()
    try:
        return msgspec.json.decode(text, type=Status)
    except (ValueError, RecursionError):
        return Status()
