"""Which PeerAuthentication decides about a port of a pod; pure, as istiod has it.

Of those that select a pod by its labels only the oldest counts, and so it is of those for a whole
namespace; two are never joined. Ports are only looked at in one with a selector (istio
pilot/pkg/security/authn/policy_applier.go, ComposePeerAuthentication; the order is that of
sortConfigByCreationTime in pilot/pkg/model/push_context.go).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from integrator_contract import names, pods
from istio_integrator.kube import cluster

STRICT = "STRICT"
PERMISSIVE = "PERMISSIVE"
"""What istiod takes where no policy says anything."""
_INHERITED = ("UNSET", "")


@dataclasses.dataclass(frozen=True)
class PeerAuthentication:
    """What a PeerAuthentication says."""

    namespace: str
    name: str
    created: str = ""
    """As Kubernetes writes it, to the second; empty sorts before all."""
    selector: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Labels of the pods that it is about; empty: all of the namespace, or of the mesh."""
    mode: str = ""
    """Empty: as the next wider policy says."""
    ports: Mapping[int, str] = dataclasses.field(default_factory=dict[int, str])
    """The modes of ports that have their own."""
    owner: str = ""
    """Which integrator its label names."""

    @property
    def reference(self) -> str:
        """How people name it."""
        return f"PeerAuthentication {self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True)
class Decided:
    """What counts for a port."""

    mode: str
    policy: PeerAuthentication | None = None
    """Whose word it is; None: nobody's."""
    nearest: PeerAuthentication | None = None
    """The only one with a selector that is looked at, whether it says anything or not."""

    @property
    def is_strict(self) -> bool:
        """Whether callers need a certificate of the mesh."""
        return self.mode == STRICT


def read_all(objects: Iterable[cluster.Object]) -> list[PeerAuthentication]:
    """Read PeerAuthentications; one that can't be read is left out."""
    return cluster.read_each(objects, lambda obj: [_read(obj)])


def decide(
    policies: Collection[PeerAuthentication],
    labels: Mapping[str, str],
    namespace: str,
    root_namespace: str,
    port: int = 0,
) -> Decided:
    """Find what counts for a port of a pod; port 0 is one that no policy names."""
    by_age = sorted(policies, key=lambda each: (each.created, f"{each.name}.{each.namespace}"))
    here = [policy for policy in by_age if policy.namespace == namespace]
    of_pods = (each for each in here if each.selector and each.selector.items() <= labels.items())
    of_all = (each for each in here if not each.selector)
    of_mesh = (each for each in by_age if each.namespace == root_namespace and not each.selector)
    nearest = None if namespace == root_namespace else next(of_pods, None)
    if nearest and port in nearest.ports:
        return Decided(nearest.ports[port], nearest, nearest)
    for policy in (nearest, next(of_all, None), next(of_mesh, None)):
        if policy and policy.mode:
            return Decided(policy.mode, policy, nearest)
    return Decided(PERMISSIVE, None, nearest)


def _read(obj: cluster.Object) -> PeerAuthentication:
    metadata, spec = obj["metadata"], cluster.at(obj, "spec")
    ports = {
        int(number): mode
        for number, one in cluster.at(spec, "portLevelMtls").items()
        if number.isdecimal() and pods.is_port(int(number)) and (mode := _mode(one))
    }
    return PeerAuthentication(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        created=str(metadata.get("creationTimestamp") or ""),
        selector=cluster.at(spec, "selector", "matchLabels"),
        mode=_mode(spec.get("mtls")),
        ports=ports,
        owner=str(cluster.at(metadata, "labels").get(names.OWNER, "")),
    )


def _mode(mtls: cluster.Object | None) -> str:
    mode = cluster.at(mtls).get("mode")
    return "" if mode in _INHERITED or not isinstance(mode, str) else mode
