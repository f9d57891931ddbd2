"""Whether pods that run to completion get native sidecars; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from integrator_contract import refusals
from istio_integrator.kube import cluster, fences
from istio_integrator.messages import Message, Said

_NATIVE_DEFAULT = (1, 33)
"""Kubelets from here on run native sidecars without a known fault (stable in 1.33)."""
_NATIVE_POSSIBLE = (1, 29)
"""Kubelets from here on have native sidecars switched on."""
_UNKNOWN = (0, 0)
_MINOR = re.compile(r"v?(\d{1,4})\.(\d{1,4})")


def depends_on_kubelets(mode: str, *, shown: bool, by_default: bool) -> bool:
    """Tell whether the nodes have a say: not in what istiod injects, or does not, anyway."""
    return shown and (mode == "native" or (mode == "auto" and not by_default))


def decide(
    mode: str,
    *,
    shown: bool,
    kubelets: Iterable[str] | None,
    refused: refusals.Refusal | None = None,
) -> tuple[bool, Message | None]:
    """Decide whether pods that run to completion get native sidecars.

    Args:
        mode: The option `job-sidecars`.
        shown: Whether a dry-run pod that asked for one got one.
        kubelets: The version of every node's kubelet; None where the decision does not depend
            on them.
        refused: Who refuses pods that ask for one.

    Returns:
        The decision, and what keeps the option from being followed.
    """
    if mode == "auto" and kubelets is None:
        return shown, None
    oldest = min([_minor(version) for version in kubelets or ()] or [_UNKNOWN])
    version = ".".join(map(str, oldest))
    if mode == "classic":
        return False, None
    if mode == "auto":
        return shown and oldest >= _NATIVE_DEFAULT, None
    obstacle = ""
    if not shown:
        obstacle = "istiod injects classic sidecars"
        if refused is not None:
            obstacle = f"{refused.author} refuses pods that ask for one"
    elif oldest == _UNKNOWN:
        obstacle = "not every node tells its kubelet's version"
    elif oldest < _NATIVE_POSSIBLE:
        obstacle = f"a node's kubelet {version} has none"
    if obstacle:
        return False, Said.NATIVE_SIDECARS_IMPOSSIBLE(obstacle=obstacle)
    return True, None


def _minor(version: str) -> tuple[int, ...]:
    match = _MINOR.match(version)
    return (int(match[1]), int(match[2])) if match else _UNKNOWN


def kubelets(nodes: Iterable[cluster.Object]) -> list[str]:
    """List the versions of the nodes' kubelets."""
    found: list[str] = []
    for node in nodes:
        with fences.around(cluster.reference(node)):
            found.append(str(node["status"]["nodeInfo"]["kubeletVersion"]))
    return found
