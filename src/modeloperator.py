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
    port: int = 0,
) -> str:
    """Name the policy that keeps Kubernetes from calling a pod in the mesh; empty if none does.

    Kubernetes calls from outside of the mesh, without a certificate of it.

    Args:
        pod: In the mesh.
        policies: PeerAuthentications and AuthorizationPolicies, of any namespace.
        root_namespace: Whose policies apply everywhere.
        port: Of the pod, at which it is called; 0: no port has settings of its own.
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
    return _denial(policy for policy in found if policy["kind"] == _AUTHORIZATION_POLICY.name)


def _mode(spec: cluster.Object, port: int) -> str:
    """Read what a PeerAuthentication asks of a port; empty: what the next wider one does."""
    own = cluster.at(spec, "portLevelMtls", str(port)).get("mode")
    mode = own or cluster.at(spec, "mtls").get("mode")
    return "" if mode == "UNSET" else str(mode or "")


def _denial(policies: Iterable[cluster.Object]) -> str:
    """Name a policy that shuts out callers that are not in the mesh.

    A DENY that takes everyone, or an ALLOW where no other lets everyone in; what depends on the
    call's own properties is not judged here.
    """
    allowing: list[cluster.Object] = []
    is_open = False
    for policy in policies:
        spec = cluster.at(policy, "spec")
        rules: list[cluster.Object] = cluster.items(spec, "rules")
        action = spec.get("action", "ALLOW")
        if action == "DENY" and any(_is_about_everything(rule) for rule in rules):
            return f"{cluster.reference(policy)} denies"
        if action == "ALLOW":
            allowing.append(policy)
            is_open |= any(not rule.get("from") and not rule.get("when") for rule in rules)
    return f"{cluster.reference(allowing[0])} denies" if allowing and not is_open else ""


def _is_about_everything(rule: cluster.Object) -> bool:
    return not any(rule.get(key) for key in ("from", "to", "when"))


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
