"""What is read of a pod at its creation, and what comes of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from integrator_contract.reasons import Reason
from sidecar_lifecycle.model import types

MOST_ANNOTATION_BYTES = 256 * 1024
"""Of all annotations together, their keys included: the API server refuses an object with more."""
MOST_ANNOTATIONS = 1000
"""A pod with more of them is left without ours."""


class Metadata(msgspec.Struct, gc=False):
    """A pod's metadata; None where the field is absent, so that a patch can add it."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Spec(msgspec.Struct, gc=False):
    """A pod's specification."""

    containers: list[types.Container]
    initContainers: list[types.Container] | None = None  # noqa: N815 - the API's name
    restartPolicy: str | None = None  # noqa: N815 - the API's name
    hostNetwork: bool | None = None  # noqa: N815 - the API's name


class Pod(msgspec.Struct, gc=False):
    """A pod as it is sent for creation."""

    metadata: Metadata
    spec: Spec


class Skip(NamedTuple):
    """A change that was wanted in general and is not made to this pod."""

    change: str
    reason: Reason
    message: str


class Mutation(NamedTuple):
    """What happens to one pod."""

    patch: list[dict[str, Any]]
    """A JSON patch of just what changes; empty when nothing does."""
    applied: tuple[str, ...]
    """What was done, in words of `mutate.CHANGES`."""
    skipped: tuple[Skip, ...]
