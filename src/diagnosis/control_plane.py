"""Checks of istiod itself: is it alive, how old is everything, is the model its member."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import ops

import cluster
import membership
import mesh
import probe

from . import finding

CNI_NODE = {"k8s-app": "istio-cni-node"}
"""Of the plugin's DaemonSet, as Istio's charts label it."""

_LIMITS = (
    ((1, 24), "does not know the annotation nativeSidecar, so Jobs get what it injects anyway"),
    ((1, 26), "has proxies drain for 5 s before they end"),
)
"""What versions before these lack; istio's release notes of each."""
_EXCLUSIONS = (
    "traffic.sidecar.istio.io/excludeOutboundPorts",
    "traffic.sidecar.istio.io/excludeOutboundIPRanges",
    "traffic.sidecar.istio.io/includeOutboundIPRanges",
)
_OURS = "istio-"
"""Init containers of Istio itself begin so."""
_UNKNOWN = (0, 0)
_INJECTORS = "kubectl get mutatingwebhookconfigurations"


def istiod(
    found: mesh.Mesh | None, said: Sequence[ops.StatusBase], *, application: str
) -> Iterable[finding.Finding]:
    """Judge whether there is an istiod that injects.

    Args:
        found: The one that was chosen.
        said: The statuses of the discovery.
        application: Ours.
    """
    findings = finding.of_statuses(said, _INJECTORS)
    if found is None:
        yield from (finding.broken(each.seen, each.next) for each in findings)
        return
    for each in findings:
        if each.level is finding.Level.BROKEN:
            yield each
    if not found.alive:
        look = f"kubectl -n {found.namespace} get pods,endpoints -l app=istiod"
        if not found.namespace:
            look = f"kubectl get mutatingwebhookconfiguration {found.webhook_configuration}"
        yield finding.broken(f"{found.name} {found.problem}".strip(), look)
    elif not found.probed:
        yield finding.doubtful(
            f"{found.name} is ready, but no dry-run pod could be tried",
            finding.own_log(application),
        )
    else:
        yield finding.fine(f"{found.name} gave a dry-run pod its sidecar")


def versions(
    found: mesh.Mesh | None,
    kubelets: Iterable[str],
    proxies: Mapping[str, str],
    *,
    application: str,
) -> Iterable[finding.Finding]:
    """Judge versions by their known limits.

    Istio supports proxies of one minor version before istiod's, and none after it
    (istio.io, "Supported releases", control plane and data plane skew).

    Args:
        found: The istiod.
        kubelets: Versions.
        proxies: The version of each proxy, by its pod.
        application: Ours.
    """
    if found is None:
        return
    said = found.version or "unknown"
    nodes = sorted({kubelet.removeprefix("v") for kubelet in kubelets}, key=_minor)
    doubts: list[finding.Finding] = []
    own = _minor(found.version)
    if own != _UNKNOWN:
        doubts += [
            finding.doubtful(f"istiod {said} {lack}", "istioctl x precheck, then upgrade Istio")
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
            names = finding.listed(ahead)
            text = f"proxies are newer than istiod {said}: {names}"
            doubts.append(finding.doubtful(text, restart))
        if behind:
            names = finding.listed(behind)
            text = f"proxies are older than istiod {said} supports: {names}"
            doubts.append(finding.doubtful(text, restart))
    if found.native_warning:
        doubts.append(finding.doubtful(found.native_warning, "kubectl get nodes"))
    yield from doubts
    if not doubts:
        yield finding.fine(f"istiod {said}, kubelets {', '.join(nodes)}, {found.sidecars}")


def label(
    decision: membership.Decision, marks: Mapping[str, str], *, wanted: str, model: str
) -> Iterable[finding.Finding]:
    """Judge the place of the model's namespace.

    Args:
        decision: What the charm would do with it now.
        marks: The mesh's labels that the namespace has.
        wanted: The option `mesh-membership`.
        model: The namespace.
    """
    has = " and ".join(f"{key}={value}" for key, value in sorted(marks.items())) or "no label"
    if decision.blocked:
        look = f"kubectl get namespace {model} --show-labels"
        yield from finding.of_statuses([ops.BlockedStatus(decision.blocked)], look)
    elif wanted != "namespace":
        yield finding.fine(f"mesh-membership={wanted}: namespace {model} has {has}")
    elif decision.waiting:
        yield finding.doubtful(f"namespace {model} has {has}: {decision.waiting}", _INJECTORS)
    elif decision.labels:
        yield finding.broken(
            f"namespace {model} has {has}, which is not the mesh's", "juju debug-log --replay"
        )
    elif decision.joined:
        yield finding.fine(f"namespace {model} has {has}")
    else:
        text = f"namespace {model} has {has}: there is no Istio to join"
        yield finding.doubtful(text, _INJECTORS)


def cni(
    found: mesh.Mesh | None,
    pods: Iterable[cluster.Object],
    daemonsets: Iterable[cluster.Object],
    *,
    application: str,
) -> Iterable[finding.Finding]:
    """Judge Istio's CNI plugin, and init containers that it leaves without a network.

    The plugin redirects traffic from a pod's first moment, while a classic proxy starts after the
    init containers.
    """
    if found is None:
        return
    if not found.cni:
        yield finding.fine("no CNI plugin of Istio: redirection begins after init containers")
        return
    away = [each for each in daemonsets if _missing(each)]
    for each in away:
        metadata = each["metadata"]
        yield finding.broken(
            f"{cluster.reference(each)} is not ready on {_missing(each)} nodes: pods there don't "
            "start",
            f"kubectl -n {metadata['namespace']} get pods -o wide -l k8s-app=istio-cni-node",
        )
    cut = [cluster.reference(pod) for pod in pods if _has_init_without_network(pod)]
    if cut:
        yield finding.doubtful(
            "init containers have no network before their classic proxy runs: "
            + finding.listed(cut),
            f"juju config {application} excluded-outbound-ports=PORT, or sidecar-mode=auto with "
            "kubelets from 1.33",
        )
    if not away and not cut:
        yield finding.fine("Istio's CNI plugin is ready, and no init container is cut off")


def _missing(daemonset: cluster.Object) -> int:
    status = cluster.at(daemonset, "status")
    return int(status.get("desiredNumberScheduled", 0)) - int(status.get("numberReady", 0))


def _has_init_without_network(pod: cluster.Object) -> bool:
    spec = cluster.at(pod, "spec")
    classic = any(each["name"] == probe.PROXY for each in cluster.items(spec, "containers"))
    own = any(not each["name"].startswith(_OURS) for each in cluster.items(spec, "initContainers"))
    annotations = cluster.at(pod, "metadata", "annotations")
    return classic and own and not any(annotations.get(key) for key in _EXCLUSIONS)


def proxy_version(pod: cluster.Object) -> str:
    """Read the version of a pod's proxy off its image; empty where the tag tells none."""
    spec = cluster.at(pod, "spec")
    for container in (*cluster.items(spec, "containers"), *cluster.items(spec, "initContainers")):
        if container["name"] == probe.PROXY:
            match = re.search(r":v?(\d+\.\d+(?:\.\d+)?)", container.get("image", ""))
            return match[1] if match else ""
    return ""


def _minor(version: str) -> tuple[int, int]:
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else _UNKNOWN
