"""Rejections in the model by other teams' admission control, found by the workload's dry runs.

The workload writes them as JSON into the ConfigMap that holds the state of convergence. The charm
reads them before it writes the webhook's settings, even while the workload is down.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from . import refusals

KEY = "rejections"


def name_config_map(application: str) -> str:
    """Return the name of the ConfigMap."""
    return f"{application}-convergence"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rejections:
    """The rejections of the last dry runs."""

    changes: Mapping[str, refusals.Refusal] = dataclasses.field(
        default_factory=dict[str, refusals.Refusal]
    )
    """Rejected changes, by their names in `mutate.CHANGES`: without them pods are admitted."""
    workloads: Mapping[str, refusals.Refusal] = dataclasses.field(
        default_factory=dict[str, refusals.Refusal]
    )
    """Workloads, such as `Deployment/modeloperator`, whose pods are rejected even without this
    charm's changes."""
    sidecars: Mapping[str, refusals.Refusal] = dataclasses.field(
        default_factory=dict[str, refusals.Refusal]
    )
    """Workloads whose pods are rejected only with a sidecar."""
