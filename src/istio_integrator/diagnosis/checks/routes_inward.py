"""Which routes of others lead into the model by the gateway workload that serves it?"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping

from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.ingress import gateway, observed
from istio_integrator.kube import cluster

from . import routes

_DEEPEST = 8
"""Names of names that are followed; Istio itself follows one."""
_WORKLOADS = (cluster.DEPLOYMENT, cluster.DAEMON_SET, cluster.STATEFUL_SET)


@registry.check(
    "routes inward",
    place=150,
    question="which VirtualServices of others lead into the model by its gateway workload, also "
    "by mirrors, TCP, TLS, delegates and `ExternalName`",
    reads="VirtualServices, Gateways, Services",
    unfelt="what it names works, for more callers than it should",
)
def routes_inward(facts: Facts) -> Iterable[Finding]:
    """Look at routes of others that lead into the model."""
    target = facts.gateway
    if target is None:
        return ()
    own = f"{facts.model}/{gateway.NAME}"
    place = Place(
        model=facts.model,
        domain=facts.domain,
        gateways={own, *(each.reference for each in target.neighbours)},
        own=own,
        other_names=other_names(facts.objects(cluster.SERVICE)),
        routers=routers(
            facts.objects(cluster.SERVICE, facts.model),
            [each for kind in _WORKLOADS for each in facts.objects(kind, facts.model)],
        ),
    )
    return judge(facts.objects(cluster.VIRTUAL_SERVICE), place)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """What tells whether a route leads into the model."""

    model: str
    domain: str
    """Of the cluster."""
    gateways: Collection[str]
    """On the workload that serves the model, each `namespace/name`; ours among them."""
    own: str
    """Ours, whose hosts are all guarded."""
    other_names: Mapping[str, str]
    """Services that are another name only, by `namespace/name`."""
    routers: Collection[str]
    """Services of gateways in the model, which decide for themselves what they let in."""

    def is_inside(self, host: str, namespace: str) -> bool:
        """Tell whether a destination is a Service of the model."""
        for _ in range(_DEEPEST):
            name = routes.service_name(host.lower(), namespace, self.domain)
            if name.startswith(f"{self.model}/"):
                return name not in self.routers
            host = self.other_names.get(name, "")
            if not host:
                break
        return False


def other_names(services: Iterable[cluster.Object]) -> dict[str, str]:
    """List the Services that only stand for another name."""
    return {
        observed.reference(each): str(name).rstrip(".")
        for each in services
        if (name := cluster.at(each, "spec").get("externalName"))
    }


def routers(services: Iterable[cluster.Object], workloads: Iterable[cluster.Object]) -> set[str]:
    """List the Services with gateways behind them and nothing else, as Knative's.

    Args:
        services: Of the model.
        workloads: Of the model.
    """
    known = [observed.Workload.of(each) for each in workloads]
    found: set[str] = set()
    for service in map(observed.Service.of, services):
        behind = [each.is_gateway for each in known if service.serves(each)]
        if behind and all(behind):
            found.add(service.reference)
    return found


def judge(virtual_services: Iterable[cluster.Object], place: Place) -> Iterable[Finding]:
    """Name the routes of others that lead into the model.

    Of what the gateway forwards as HTTP it knows whom the request is from. What it copies for a
    host that is not guarded, or passes on as it came, it does not look into.

    Args:
        virtual_services: All of them.
        place: Where they may lead.
    """
    everything = {observed.reference(route): route for route in virtual_services}
    forwarded: list[str] = []
    unseen: list[str] = []
    for name, route in sorted(everything.items()):
        bound = set(routes.gateways_of(route)) & set(place.gateways)
        if route["metadata"]["namespace"] == place.model or not bound:
            continue
        ways = {
            how
            for part, host, how in _parts(route, everything)
            if place.is_inside(host, part["metadata"]["namespace"])
        }
        if "raw" in ways or ("copied" in ways and bound != {place.own}):
            unseen.append(name)
        elif ways:
            forwarded.append(name)
    if unseen:
        yield findings.doubtful(
            f"VirtualService {report.listed(unseen)} hands requests to the model that say "
            "themselves whom they are from",
            _show(unseen[0]),
        )
    if forwarded:
        yield findings.doubtful(
            f"VirtualService {report.listed(forwarded)} leads into the model, with the gateway's "
            "identity",
            _show(forwarded[0]),
        )
    if not (unseen or forwarded):
        yield findings.fine("no route of others leads into the model")


def _parts(
    route: cluster.Object, everything: Mapping[str, cluster.Object]
) -> Iterator[tuple[cluster.Object, str, str]]:
    """List a route's destinations and how requests come there, each with whose words they are."""
    for part in (route, *_delegates(route, everything)):
        spec = cluster.at(part, "spec")
        for each in cluster.items(spec, "http"):
            for host in _hosts(each, "route"):
                yield part, host, "forwarded"
            mirror = cluster.at(each, "mirror").get("host")
            for host in (*([str(mirror)] if mirror else []), *_hosts(each, "mirrors")):
                yield part, host, "copied"
        for protocol in ("tls", "tcp"):
            for each in cluster.items(spec, protocol):
                for host in _hosts(each, "route"):
                    yield part, host, "raw"


def _delegates(
    route: cluster.Object, everything: Mapping[str, cluster.Object]
) -> Iterator[cluster.Object]:
    for each in cluster.items(cluster.at(route, "spec"), "http"):
        if to := cluster.at(each, "delegate"):
            namespace = to.get("namespace") or route["metadata"]["namespace"]
            if found := everything.get(f"{namespace}/{to.get('name')}"):
                yield found


def _hosts(obj: cluster.Object, key: str) -> list[str]:
    found = [cluster.at(each, "destination").get("host") for each in cluster.items(obj, key)]
    return [str(host) for host in found if host]


def _show(name: str) -> str:
    namespace, _, name = name.partition("/")
    return f"kubectl -n {namespace} get virtualservice {name} -o yaml"
