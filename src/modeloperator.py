"""Juju's modeloperator: what of the mesh would keep Kubernetes from reaching its webhook."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import ops

import cluster
import component
import errors
import probe

logger = logging.getLogger(__name__)

SELECTOR = {"operator.juju.is/name": "modeloperator"}

_PEER_AUTHENTICATION = cluster.kind("security.istio.io/v1", "PeerAuthentication")
_AUTHORIZATION_POLICY = cluster.kind("security.istio.io/v1", "AuthorizationPolicy")
_AMBIENT = "ambient.istio.io/redirection"
_DRY_RUN = "istio.io/dry-run"


def is_in_mesh(pod: cluster.Object) -> bool:
    """Tell whether the pod's connections go through a proxy, its own or its node's."""
    spec = cluster.at(pod, "spec")
    containers = (*cluster.items(spec, "containers"), *cluster.items(spec, "initContainers"))
    ambient = cluster.at(pod, "metadata", "annotations").get(_AMBIENT) == "enabled"
    return ambient or any(container["name"] == probe.PROXY for container in containers)


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
    found = [policy for policy in policies if _selects(policy, namespace, labels, root_namespace)]
    peers = [policy for policy in found if policy["kind"] == _PEER_AUTHENTICATION.name]
    # The nearest one decides: the pod's own before its namespace's before the mesh's.
    peers.sort(key=lambda policy: (not _is_for_pods(policy), _place(policy) != namespace))
    for policy in peers:
        if mode := _mode(cluster.at(policy, "spec"), port):
            if mode == "STRICT":
                return f"{cluster.reference(policy)} asks for mutual TLS"
            break
    return _denial((each for each in found if each["kind"] == _AUTHORIZATION_POLICY.name), port)


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
        spec = cluster.at(policy, "spec")
        rules: list[cluster.Object] = cluster.items(spec, "rules")
        action = spec.get("action", "ALLOW")
        # Istio drops a rule about requests where it sees none, and only its parts when it denies:
        # pilot/pkg/security/authz/model, checkError.
        if action == "DENY" and any(_is_about(rule, port, requests=True) for rule in rules):
            return f"{cluster.reference(policy)} denies"
        if action == "ALLOW":
            allowing.append(policy)
            is_open |= any(_is_about(rule, port, unknown=True) for rule in rules)
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
        return requests if one["key"].startswith("request.") else unknown

    sources = [cluster.at(one, "source") for one in cluster.items(rule, "from")]
    operations = [cluster.at(one, "operation") for one in cluster.items(rule, "to")]
    return (
        (not sources or any(map(source, sources)))
        and (not operations or any(map(operation, operations)))
        and all(map(condition, cluster.items(rule, "when")))
    )


def _place(policy: cluster.Object) -> str:
    return policy["metadata"].get("namespace", "")


def _is_for_pods(policy: cluster.Object) -> bool:
    return bool(cluster.at(policy, "spec", "selector", "matchLabels"))


def _selects(
    policy: cluster.Object, namespace: str, labels: dict[str, Any], root_namespace: str
) -> bool:
    spec = cluster.at(policy, "spec")
    is_tried = cluster.at(policy, "metadata", "annotations").get(_DRY_RUN) == "true"
    # What names its targets is for gateways and waypoints, which a sidecar is not.
    is_elsewhere = spec.get("targetRefs") or spec.get("targetRef")
    if _place(policy) not in (namespace, root_namespace) or is_elsewhere or is_tried:
        return False
    wanted = cluster.at(spec, "selector", "matchLabels")
    return wanted.items() <= labels.items()


def _port(pod: cluster.Object) -> int:
    """Return the first port that the pod's own containers tell of; 0 if none does."""
    return next(
        (
            int(port["containerPort"])
            for container in cluster.items(cluster.at(pod, "spec"), "containers")
            if container["name"] != probe.PROXY
            for port in cluster.items(container, "ports")
        ),
        0,
    )


class Modeloperator:
    """Looks whether Juju's own part of the model can still be called."""

    def __init__(self, scope: component.Scope) -> None:
        self._scope = scope
        self._blocked = ""

    def reconcile(self) -> None:
        """Look again; nothing is written, and nothing is read of policies while it is outside."""
        scope = self._scope
        pods = scope.cluster.list(cluster.POD, namespace=scope.model, labels=SELECTOR)
        inside = [pod for pod in pods if is_in_mesh(pod)]
        if not inside or scope.mesh is None:
            return
        try:
            policies = [
                policy
                for kind in (_PEER_AUTHENTICATION, _AUTHORIZATION_POLICY)
                for namespace in sorted({scope.model, scope.mesh.root_namespace})
                for policy in scope.cluster.list(kind, namespace=namespace)
            ]
        except errors.ForbiddenError as error:
            logger.warning("Whether a policy cuts modeloperator off is not known: %s", error)
            return
        for pod in inside:
            root = scope.mesh.root_namespace
            if found := obstacle(pod, policies, root_namespace=root, port=_port(pod)):
                name = pod["metadata"]["name"]
                # The next pod gets no sidecar: our admission sees to it.
                self._blocked = (
                    f"modeloperator is in the mesh and {found}, so Juju's webhook can't be "
                    f"called; run: kubectl delete pod -n {scope.model} {name}"
                )

    def remove(self) -> None:
        """Nothing is ours to remove."""

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say what cuts it off."""
        if self._blocked:
            yield ops.BlockedStatus(self._blocked)
