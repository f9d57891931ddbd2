"""Whether policies let a caller without an identity of the mesh reach a pod in it; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from integrator_contract import names
from istio_integrator.kube import cluster, fences

_PEER_AUTHENTICATION = "PeerAuthentication"
_AUTHORIZATION_POLICY = "AuthorizationPolicy"


def is_in_mesh(pod: cluster.Object) -> bool:
    """Tell whether the pod's connections go through a proxy, its own or its node's."""
    spec = cluster.at(pod, "spec")
    containers = (*cluster.parts(spec, "containers"), *cluster.parts(spec, "initContainers"))
    ambient = (
        cluster.at(pod, "metadata", "annotations").get(names.AMBIENT_REDIRECTION) == "enabled"
    )
    return ambient or any(container.get("name") == names.PROXY for container in containers)


def obstacle(
    pod: cluster.Object,
    policies: Iterable[cluster.Object],
    *,
    root_namespace: str,
    port: int = 0,
) -> str:
    """Name the policy that keeps Kubernetes from calling a pod in the mesh; empty if none does.

    Kubernetes calls from outside of the mesh, without a certificate of it, and over TLS that the
    proxy can't look into.

    Args:
        pod: In the mesh.
        policies: PeerAuthentications and AuthorizationPolicies, of any namespace.
        root_namespace: Whose policies apply everywhere.
        port: Of the pod, at which it is called; 0: not known.
    """
    labels = cluster.at(pod, "metadata", "labels")
    namespace = pod["metadata"]["namespace"]
    selecting: list[cluster.Object] = []
    for policy in policies:
        with fences.around(cluster.reference(policy)):
            if _selects(policy, namespace, labels, root_namespace):
                selecting.append(policy)
    peers = [policy for policy in selecting if policy["kind"] == _PEER_AUTHENTICATION]
    # The nearest one decides: the pod's own before its namespace's before the mesh's.
    peers.sort(key=lambda policy: (not _is_for_pods(policy), _place(policy) != namespace))
    for policy in peers:
        if mode := _mode(cluster.at(policy, "spec"), port):
            if mode == "STRICT":
                return f"{cluster.reference(policy)} asks for mutual TLS"
            break
    return _denial((each for each in selecting if each["kind"] == _AUTHORIZATION_POLICY), port)


def _mode(spec: cluster.Object, port: int) -> str:
    """Read what a PeerAuthentication asks of a port; empty: what the next wider one does."""
    own = cluster.at(spec, "portLevelMtls", str(port)).get("mode")
    mode = own or cluster.at(spec, "mtls").get("mode")
    return "" if mode == "UNSET" else str(mode or "")


def _denial(policies: Iterable[cluster.Object], port: int) -> str:
    """Name a policy that shuts such a caller out.

    A DENY that is about it, or an ALLOW where no other lets it in. What depends on the caller's
    address is not blamed.
    """
    allowing: list[cluster.Object] = []
    is_open = False
    for policy in policies:
        with fences.around(cluster.reference(policy)):
            spec = cluster.at(policy, "spec")
            rules = cluster.parts(spec, "rules")
            action = spec.get("action", "ALLOW")
            # Istio drops a rule about requests where it sees none, and only its parts when it
            # denies: pilot/pkg/security/authz/model, checkError.
            if action == "DENY" and any(_is_about(rule, port, requests=True) for rule in rules):
                return f"{cluster.reference(policy)} denies"
            if action == "ALLOW":
                is_open |= any(_is_about(rule, port, unknown=True) for rule in rules)
                allowing.append(policy)
    return f"{cluster.reference(allowing[0])} denies" if allowing and not is_open else ""


_IDENTITIES = ("principals", "namespaces", "serviceAccounts", "trustDomains")
_ADDRESSES = ("ipBlocks", "remoteIpBlocks", "notIpBlocks", "notRemoteIpBlocks")
_TOKENS = ("requestPrincipals", "notRequestPrincipals")
_REQUESTS = ("hosts", "notHosts", "methods", "notMethods", "paths", "notPaths")


def _is_about(
    rule: cluster.Object, port: int, *, requests: bool = False, unknown: bool = False
) -> bool:
    """Tell whether a rule takes a caller that has no identity and shows no request.

    Args:
        rule: Of an AuthorizationPolicy.
        port: That is called; 0: not known.
        requests: What a condition on a request counts as.
        unknown: What a condition that can't be judged here counts as.
    """

    def source(one: cluster.Object) -> bool:
        return (
            not any(one.get(key) for key in _IDENTITIES)
            and (requests or not any(one.get(key) for key in _TOKENS))
            and (unknown or not any(one.get(key) for key in _ADDRESSES))
        )

    def operation(one: cluster.Object) -> bool:
        ports, others = cluster.items(one, "ports"), cluster.items(one, "notPorts")
        if (ports or others) and not port:
            return unknown
        is_at_port = (not ports or str(port) in ports) and str(port) not in others
        return is_at_port and (requests or not any(one.get(key) for key in _REQUESTS))

    def condition(one: cluster.Object) -> bool:
        return requests if str(one.get("key")).startswith("request.") else unknown

    sources = [cluster.at(one, "source") for one in cluster.parts(rule, "from")]
    operations = [cluster.at(one, "operation") for one in cluster.parts(rule, "to")]
    return (
        (not sources or any(map(source, sources)))
        and (not operations or any(map(operation, operations)))
        and all(map(condition, cluster.parts(rule, "when")))
    )


def _place(policy: cluster.Object) -> str:
    return policy["metadata"].get("namespace", "")


def _is_for_pods(policy: cluster.Object) -> bool:
    return bool(cluster.at(policy, "spec", "selector", "matchLabels"))


def _selects(
    policy: cluster.Object, namespace: str, labels: dict[str, Any], root_namespace: str
) -> bool:
    spec = cluster.at(policy, "spec")
    is_tried = cluster.at(policy, "metadata", "annotations").get(names.DRY_RUN) == "true"
    # What names its targets is for gateways and waypoints, which a sidecar is not.
    is_elsewhere = spec.get("targetRefs") or spec.get("targetRef")
    if _place(policy) not in (namespace, root_namespace) or is_elsewhere or is_tried:
        return False
    selector = cluster.at(spec, "selector", "matchLabels")
    return selector.items() <= labels.items()
