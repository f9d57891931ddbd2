"""Whether pods that run to completion get native sidecars; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from integrator_contract import refusals
from istio_integrator.kube import cluster, fences
from istio_integrator.messages import Message, Said

_NATIVE_DEFAULT = (1, 33)
"""Kubelets from here on run native sidecars without a known fault (stable in 1.33)."""
_NATIVE_POSSIBLE = (1, 29)
"""Kubelets from here on have native sidecars switched on."""
_UNKNOWN = (0, 0)
_MINOR = re.compile(r"v?(\d{1,4})\.(\d{1,4})")


def decide(
    mode: str,
    *,
    shown: bool,
    by_default: bool,
    nodes: Callable[[], Iterable[cluster.Object]],
    refused: refusals.Refusal | None = None,
) -> tuple[bool, Message | None]:
    """Decide whether pods that run to completion get native sidecars.

    Args:
        mode: The option `job-sidecars`.
        shown: Whether a dry-run pod that asked for one got one.
        by_default: Whether one that asked for nothing got one.
        nodes: Lists the nodes; called only where their kubelets have a say.
        refused: Who refuses pods that ask for one.

    Returns:
        The decision, and what keeps the option from being followed.
    """
    if mode == "classic":
        return False, None
    if mode == "auto":
        return shown and (by_default or _oldest(nodes()) >= _NATIVE_DEFAULT), None
    obstacle = ""
    if not shown:
        obstacle = "istiod injects classic sidecars"
        if refused is not None:
            obstacle = f"{refused.author} refuses pods that ask for one"
    elif (oldest := _oldest(nodes())) == _UNKNOWN:
        obstacle = "not every node tells its kubelet's version"
    elif oldest < _NATIVE_POSSIBLE:
        obstacle = f"a node's kubelet {'.'.join(map(str, oldest))} has none"
    if obstacle:
        return False, Said.NATIVE_SIDECARS_IMPOSSIBLE(obstacle=obstacle)
    return True, None


def _oldest(nodes: Iterable[cluster.Object]) -> tuple[int, int]:
    """Return the oldest minor version of the nodes' kubelets; 0.0 where one can't be read."""
    found: list[tuple[int, int]] = []
    for node in nodes:
        # A virtual node that has no kubelet has no say.
        with fences.around(cluster.reference(node)):
            match = _MINOR.match(str(node["status"]["nodeInfo"]["kubeletVersion"]))
            found.append((int(match[1]), int(match[2])) if match else _UNKNOWN)
    return min(found, default=_UNKNOWN)
