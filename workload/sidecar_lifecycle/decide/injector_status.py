"""The annotation in which the injector lists what it has added to a pod.

Users can write it, too, and a template copied from a live pod's YAML still has it.
"""

from __future__ import annotations

import msgspec

from integrator_contract import names
from sidecar_lifecycle.model import types

LONGEST_STATUS = 64 * 1024
"""Characters that are read; the injector writes a few hundred."""


class InjectorStatus(msgspec.Struct):
    """The fields that are read, with the injector's names."""

    revision: str = ""
    containers: list[str] | None = None
    initContainers: list[str] | None = None  # noqa: N815 - the injector's name

    @property
    def added_containers(self) -> set[str]:
        """The names of the containers and init containers that the injector added."""
        return {*(self.containers or ()), *(self.initContainers or ())}


def read(pod: types.Pod) -> InjectorStatus:
    """Return the content of the annotation; empty if it is missing or invalid."""
    text = pod.metadata.annotations.get(names.SIDECAR_STATUS, "")
    if not text or len(text) > LONGEST_STATUS:
        return InjectorStatus()
    try:
        return msgspec.json.decode(text, type=InjectorStatus)
    except (ValueError, RecursionError):
        return InjectorStatus()
