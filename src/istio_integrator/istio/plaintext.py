"""Whether policies let a caller without an identity of the mesh reach a pod in it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from integrator_contract import booleans, names
from istio_integrator.istio import peer_authentication
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
    # A proxy with the image `auto` waits for the injector, which has not filled it in.
    return ambient or any(
        container.get("name") == names.PROXY and container.get("image") != names.AUTO_IMAGE
        for container in containers
    )


def is_router(pod: cluster.Object) -> bool:
    """Tell whether a pod, or the template of one, routes for others."""
    return any(
        container.get("name") == names.PROXY and "router" in cluster.items(container, "args")
        for container in cluster.parts(cluster.at(pod, "spec"), "containers")
    )


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
    policies = list(policies)
    labels = cluster.at(pod, "metadata", "labels")
    namespace = pod["metadata"]["namespace"]
    selecting: list[cluster.Object] = []
    for policy in policies:
        with fences.around(cluster.reference(policy)):
            if _selects(policy, namespace, labels, root_namespace):
                selecting.append(policy)
    peers = [policy for policy in policies if policy["kind"] == _PEER_AUTHENTICATION]
    decided = peer_authentication.decide(
        peer_authentication.read_all(peers),
        labels,
        namespace=namespace,
        root_namespace=root_namespace,
        port=port,
    )
    if decided.is_strict and decided.policy is not None:
        return f"{decided.policy.reference} asks for mutual TLS"
    return _denial((each for each in selecting if each["kind"] == _AUTHORIZATION_POLICY), port)


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


def _selects(
    policy: cluster.Object, namespace: str, labels: dict[str, Any], root_namespace: str
) -> bool:
    return _place(policy) in (namespace, root_namespace) and selects(policy, labels)


def selects(policy: cluster.Object, labels: Mapping[str, Any]) -> bool:
    """Tell whether a policy of a pod's namespace, or of the mesh, is about its sidecar."""
    spec = cluster.at(policy, "spec")
    # What names its targets is for gateways and waypoints, which a sidecar is not.
    if spec.get("targetRefs") or spec.get("targetRef") or is_only_tried(policy):
        return False
    wanted = cluster.at(spec, "selector", "matchLabels")
    return all(labels.get(key) == value for key, value in wanted.items())


def is_only_tried(policy: cluster.Object) -> bool:
    """Tell whether istiod has proxies log what a policy would do, and no more."""
    annotations = cluster.at(policy, "metadata", "annotations")
    return booleans.parse(str(annotations.get(names.DRY_RUN)), default=False)
