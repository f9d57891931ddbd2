"""Whether pods deny plain text from the other pods of their namespace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from istio_integrator.istio import authorization_policy, installation, peer_authentication
from istio_integrator.kube import cluster


def is_denied(
    api: cluster.Cluster, mesh: installation.Mesh, namespace: str, labels: Mapping[str, str]
) -> bool:
    """Tell whether pods deny plain text at ports of no Service, but not certificates of their own.

    `labels` are those of the pods. The caller's certificate is of another pod of the namespace.
    """
    root = mesh.settings.root_namespace

    def found(kind: cluster.Kind) -> Iterator[cluster.Object]:
        for place in dict.fromkeys((namespace, root)):
            yield from api.list_if_allowed(kind, place) if place else ()

    modes = peer_authentication.read_all(found(cluster.PEER_AUTHENTICATION))
    policies = authorization_policy.read_all(
        found(cluster.AUTHORIZATION_POLICY), mesh.settings.trust_domains
    )
    selected = [each for each in policies if each.selects(labels, namespace, root)]
    peer = authorization_policy.make_principal(
        namespace, "default", mesh.settings.trust_domains[0]
    )
    request = authorization_policy.InboundRequest(seen_by="tcp")

    def is_refused(caller: str) -> bool:
        answer = authorization_policy.decide(selected, caller, request).answer
        return answer is authorization_policy.Truth.NO

    is_strict = peer_authentication.decide_mode(modes, labels, namespace, root).is_strict
    return (is_strict or is_refused("")) and not is_refused(peer)
