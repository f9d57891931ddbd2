"""What admission control of other teams rejects in the model, as the workload found by dry runs.

The workload writes it as JSON into the ConfigMap in which convergence remembers its state. There
the charm finds it before it writes the webhook's settings, and while the workload is away.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from . import refusals

KEY = "rejections"


def config_map(application: str) -> str:
    """Return the name of the ConfigMap."""
    return f"{application}-convergence"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rejections:
    """What was rejected at the last look."""

    settings: str = ""
    """Names the settings of admission that were tried."""
    changes: Mapping[str, refusals.Refusal] = dataclasses.field(
        default_factory=dict[str, refusals.Refusal]
    )
    """By the words of `mutate.CHANGES`: changes without which admission control admits pods."""
    workloads: Mapping[str, refusals.Refusal] = dataclasses.field(
        default_factory=dict[str, refusals.Refusal]
    )
    """By workloads such as `Deployment/modeloperator`: pods that are rejected without any change
    of ours, too."""
