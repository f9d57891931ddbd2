"""Do the versions of istiod, kubelets and proxies go together?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster
from istio_integrator.mesh import installation, native_sidecars, probe

ANNOTATION_SINCE = (1, 24)
"""The first Istio in which a pod may ask for a native sidecar."""
_LIMITS = (
    (
        ANNOTATION_SINCE,
        "does not know the annotation nativeSidecar, so Jobs get what it injects anyway",
    ),
    ((1, 26), "has proxies drain for 5 s before they end"),
)
"""What versions before these lack; istio's release notes of each."""

_UNKNOWN = (0, 0)
_UNTOLD = "unknown, so what it lacks is not judged (no tag of an image and no istiod tells it)"

_MINOR = re.compile(r"v?(\d{1,4})\.(\d{1,4})")


@registry.check(
    "versions",
    place=20,
    question="istiod, kubelets and proxies, and what each lacks",
    reads="nodes, images of proxies",
    unfelt="it says what a version lacks, which the others name where it hurts",
)
def versions(facts: Facts) -> Iterable[Finding]:
    """Look at the versions of istiod, of the nodes' kubelets and of the model's proxies."""
    kubelets = native_sidecars.kubelets(facts.nodes)
    found = {cluster.reference(pod): probe.read(pod) for pod in facts.pods}
    proxies = {pod: proxy.version for pod, proxy in found.items() if proxy.injected}
    return judge(facts.mesh, kubelets, proxies, application=facts.application)


def judge(
    istio: installation.Mesh | None,
    kubelets: Iterable[str],
    proxies: Mapping[str, str],
    *,
    application: str,
) -> Iterable[Finding]:
    """Judge versions by their known limits.

    Istio supports proxies of one minor version before istiod's, and none after it
    (istio.io, "Supported releases", control plane and data plane skew).

    Args:
        istio: The istiod.
        kubelets: Versions.
        proxies: The version of each proxy, by its pod.
        application: Ours.
    """
    if istio is None:
        return
    said = istio.version or _UNTOLD
    nodes = sorted({kubelet.removeprefix("v") for kubelet in kubelets}, key=_minor)
    doubts: list[Finding] = []
    own = _minor(istio.version)
    if own != _UNKNOWN:
        doubts += [
            findings.doubtful(f"istiod {said} {lack}", "istioctl x precheck, then upgrade Istio")
            for since, lack in _LIMITS
            if own < since
        ]
        ahead = [pod for pod, version in proxies.items() if _minor(version) > own]
        behind = [
            pod
            for pod, version in proxies.items()
            if _UNKNOWN != _minor(version) < (own[0], own[1] - 1)
        ]
        restart = f"juju run {application}/leader restart-stale"
        if ahead:
            names = report.listed(ahead)
            text = f"proxies are newer than istiod {said}: {names}"
            doubts.append(findings.doubtful(text, restart))
        if behind:
            names = report.listed(behind)
            text = f"proxies are older than istiod {said} supports: {names}"
            doubts.append(findings.doubtful(text, restart))
    if istio.native_warning:
        doubts.append(findings.doubtful(istio.native_warning, "kubectl get nodes"))
    yield from doubts
    if not doubts:
        text = f"istiod {said}, kubelets {', '.join(nodes)}, {istio.sidecars}"
        untold = [pod for pod, version in proxies.items() if _minor(version) == _UNKNOWN]
        if untold:
            text = f"{text}; not judged, as no tag tells their version: {report.listed(untold)}"
        yield findings.fine(text)


def _minor(version: str) -> tuple[int, int]:
    match = _MINOR.match(version)
    return (int(match[1]), int(match[2])) if match else _UNKNOWN
