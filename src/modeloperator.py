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
) -> str:
    """Name the policy that keeps Kubernetes from calling a pod in the mesh; empty if none does.

    Kubernetes calls from outside of the mesh, without a certificate of it.

    Args:
        pod: In the mesh.
        policies: PeerAuthentications and AuthorizationPolicies, of any namespace.
        root_namespace: Whose policies apply everywhere.
    """
    labels = cluster.at(pod, "metadata", "labels")
    namespace = pod["metadata"]["namespace"]
    found = [policy for policy in policies if _selects(policy, namespace, labels, root_namespace)]
    peers = [policy for policy in found if policy["kind"] == _PEER_AUTHENTICATION.name]
    # The nearest one decides: the pod's own before its namespace's before the mesh's.
    peers.sort(key=lambda policy: (not _is_for_pods(policy), _place(policy) != namespace))
    for policy in peers[:1]:
        if cluster.at(policy, "spec", "mtls").get("mode") == "STRICT":
            return f"{cluster.reference(policy)} asks for mutual TLS"
    for policy in found:
        if policy["kind"] == _AUTHORIZATION_POLICY.name and _denies(cluster.at(policy, "spec")):
            return f"{cluster.reference(policy)} denies"
    return ""


def _place(policy: cluster.Object) -> str:
    return policy["metadata"].get("namespace", "")


def _is_for_pods(policy: cluster.Object) -> bool:
    return bool(cluster.at(policy, "spec", "selector", "matchLabels"))


def _selects(
    policy: cluster.Object, namespace: str, labels: dict[str, Any], root_namespace: str
) -> bool:
    if _place(policy) not in (namespace, root_namespace):
        return False
    wanted = cluster.at(policy, "spec", "selector", "matchLabels")
    return wanted.items() <= labels.items()


def _denies(spec: cluster.Object) -> bool:
    """Tell whether a policy shuts out callers that are not in the mesh.

    An ALLOW without a rule that takes everyone, and a DENY with one that does; what depends on
    the call's own properties is not judged here.
    """
    rules: list[cluster.Object] = cluster.items(spec, "rules")
    anyone = any(not rule.get("from") and not rule.get("when") for rule in rules)
    action = spec.get("action", "ALLOW")
    if action == "ALLOW":
        return not anyone
    everything = any(not any(rule.get(key) for key in ("from", "to", "when")) for rule in rules)
    return action == "DENY" and everything


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
            if found := obstacle(pod, policies, root_namespace=scope.mesh.root_namespace):
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
