"""Which PeerAuthentication decides about a port of a pod, by istiod's rules; pure.

Of the policies that select a pod by its labels, only the oldest applies. The same holds for those
of a whole namespace. Two policies are never merged. Ports are read only in a policy with a
selector (istio pilot/pkg/security/authn/policy_applier.go, ComposePeerAuthentication; the order is
that of sortConfigByCreationTime in pilot/pkg/model/push_context.go).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from integrator_contract import names, pods
from istio_integrator.kube import cluster

STRICT = "STRICT"
PERMISSIVE = "PERMISSIVE"
"""Istio's default where no policy sets a mode."""
_INHERITED = ("UNSET", "")


@dataclasses.dataclass(frozen=True)
class PeerAuthentication:
    """The settings of a PeerAuthentication."""

    namespace: str
    name: str
    created: str = ""
    """Creation time as Kubernetes writes it, to the second; empty sorts first."""
    selector: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Labels of the selected pods; empty: all pods of the namespace, or of the mesh."""
    mode: str = ""
    """Empty: the mode of the next wider policy."""
    ports: Mapping[int, str] = dataclasses.field(default_factory=dict[int, str])
    """The modes of ports with a mode of their own."""
    owner: str = ""
    """The integrator that its label names."""

    @property
    def reference(self) -> str:
        """The name in messages."""
        return f"PeerAuthentication {self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True)
class ModeDecision:
    """The mode that applies to a port."""

    mode: str
    policy: PeerAuthentication | None = None
    """The policy that sets the mode; None: Istio's default."""
    nearest: PeerAuthentication | None = None
    """The only policy with a selector that istiod reads, even if it sets no mode."""

    @property
    def is_strict(self) -> bool:
        """Whether callers need a certificate of the mesh."""
        return self.mode == STRICT


def read_all(objects: Iterable[cluster.Object]) -> list[PeerAuthentication]:
    """Read PeerAuthentications, without those that can't be read."""
    return cluster.read_each(objects, lambda obj: [_read_policy(obj)])


def decide_mode(
    policies: Collection[PeerAuthentication],
    labels: Mapping[str, str],
    namespace: str,
    root_namespace: str,
    port: int = 0,
) -> ModeDecision:
    """Find the mode of a port of a pod; port 0 is a port that no policy names."""
    # The order of `cluster.rank_by_age`.
    by_age = sorted(policies, key=lambda each: (each.created, each.name, each.namespace))
    here = [policy for policy in by_age if policy.namespace == namespace]
    of_pods = (each for each in here if each.selector and each.selector.items() <= labels.items())
    of_all = (each for each in here if not each.selector)
    of_mesh = (each for each in by_age if each.namespace == root_namespace and not each.selector)
    nearest = None if namespace == root_namespace else next(of_pods, None)
    if nearest and port in nearest.ports:
        return ModeDecision(nearest.ports[port], nearest, nearest)
    for policy in (nearest, next(of_all, None), next(of_mesh, None)):
        if policy and policy.mode:
            return ModeDecision(policy.mode, policy, nearest)
    return ModeDecision(PERMISSIVE, None, nearest)


def _read_policy(obj: cluster.Object) -> PeerAuthentication:
    metadata, spec = obj["metadata"], cluster.at(obj, "spec")
    ports = {
        int(number): mode
        for number, one in cluster.at(spec, "portLevelMtls").items()
        if number.isdecimal() and pods.is_port(int(number)) and (mode := _read_mode(one))
    }
    return PeerAuthentication(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        created=str(metadata.get("creationTimestamp") or ""),
        selector=cluster.at(spec, "selector", "matchLabels"),
        mode=_read_mode(spec.get("mtls")),
        ports=ports,
        owner=str(cluster.at(metadata, "labels").get(names.OWNER, "")),
    )


def _read_mode(mtls: cluster.Object | None) -> str:
    mode = cluster.at(mtls).get("mode")
    return "" if mode in _INHERITED or not isinstance(mode, str) else mode
