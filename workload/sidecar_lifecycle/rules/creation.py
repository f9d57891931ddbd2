"""What is read of a pod at its creation, what is wanted of it, and what comes of that."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from sidecar_lifecycle import names

from . import selectors

NamespaceKind = Literal["model", "profiles", "labelled"]


class Container(msgspec.Struct, gc=False):
    """A container's name and image."""

    name: str = ""
    image: str | None = None


class Metadata(msgspec.Struct, gc=False):
    """A pod's metadata; None where the field is absent, so that a patch can add it."""

    name: str | None = None
    generateName: str | None = None  # noqa: N815 - the API's name
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Spec(msgspec.Struct, gc=False):
    """A pod's specification."""

    containers: list[Container]
    initContainers: list[Container] | None = None  # noqa: N815 - the API's name
    restartPolicy: str | None = None  # noqa: N815 - the API's name
    hostNetwork: bool | None = None  # noqa: N815 - the API's name


class Pod(msgspec.Struct, gc=False):
    """A pod as it is sent for creation."""

    metadata: Metadata
    spec: Spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entries:
    """Labels or annotations that selected pods get where they don't have them."""

    pods: selectors.Selector | None = None
    """None: every pod."""
    add: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ports:
    """Outbound ports that the proxy of selected pods leaves alone."""

    pods: selectors.Selector | None = None
    ports: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Registries:
    """Where the images of selected pods come from instead."""

    pods: selectors.Selector
    prefixes: tuple[tuple[str, str], ...]
    """Pairs of an old and a new prefix, the longest old one first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What new pods get, as the charm's options and the mesh have it."""

    application: str
    model: str
    revision: str = ""
    """Names these settings; the charm's probes get it back and so see that they are in effect."""
    membership: Literal["namespace", "selected", "none"] = "namespace"
    lifecycle_in_model: bool = True
    """Whether pods of the model get more than their place in or outside of the mesh."""
    included_pods: selectors.Selector = selectors.NOTHING
    excluded_pods: selectors.Selector = selectors.NOTHING
    inject_label: tuple[str, str] = (names.INJECT, "true")
    """What makes one pod a member of the mesh in a namespace that is none."""
    hold_application: bool = True
    native: bool = False
    """Whether pods that run to completion ask for a native sidecar."""
    pod_labels: tuple[Entries, ...] = ()
    pod_annotations: tuple[Entries, ...] = ()
    excluded_outbound_ports: tuple[Ports, ...] = ()
    image_registries: tuple[Registries, ...] = ()


class Skip(NamedTuple):
    """A change that was wanted in general and is not made to this pod."""

    change: str
    reason: str
    """A CamelCase word."""
    message: str


class Mutation(NamedTuple):
    """What happens to one pod."""

    patch: list[dict[str, Any]]
    """A JSON patch of just what changes; empty when nothing does."""
    applied: tuple[str, ...]
    """What was done, in words: excluded, inject, annotations, ports, native, hold, images,
    labels."""
    skipped: tuple[Skip, ...]
