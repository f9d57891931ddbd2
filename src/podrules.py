"""What the operator wants of new pods beside their sidecar: labels, annotations, ports, images."""

from __future__ import annotations

import dataclasses
from typing import Any

import labels


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entries:
    """Labels or annotations that selected pods get where they don't have them."""

    selector: str = ""
    """Empty: every pod."""
    add: tuple[tuple[str, str], ...]

    @property
    def pods(self) -> tuple[labels.Requirement, ...]:
        """The selector's parts."""
        return labels.parse(self.selector)

    def as_setting(self) -> dict[str, Any]:
        """Write the rule as the workload's settings have it."""
        return {"pods": self.selector, "add": dict(self.add)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ports:
    """Outbound ports that the proxy of selected pods leaves alone."""

    selector: str = ""
    ports: tuple[int, ...]

    @property
    def pods(self) -> tuple[labels.Requirement, ...]:
        """The selector's parts."""
        return labels.parse(self.selector)

    def as_setting(self) -> dict[str, Any]:
        """Write the rule as the workload's settings have it."""
        return {"pods": self.selector, "ports": list(self.ports)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Registries:
    """Where the images of selected pods come from instead."""

    selector: str
    prefixes: tuple[tuple[str, str], ...]
    """Pairs of an old and a new prefix, the longest old one first."""

    @property
    def pods(self) -> tuple[labels.Requirement, ...]:
        """The selector's parts."""
        return labels.parse(self.selector)

    def as_setting(self) -> dict[str, Any]:
        """Write the rule as the workload's settings have it."""
        return {"pods": self.selector, "prefixes": dict(self.prefixes)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodRules:
    """All of them."""

    labels: tuple[Entries, ...] = ()
    annotations: tuple[Entries, ...] = ()
    excluded_outbound_ports: tuple[Ports, ...] = ()
    image_registries: tuple[Registries, ...] = ()
