"""The pods in the mesh, and the clients there that call without a certificate of the mesh."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from integrator_contract import booleans, names, pods
from istio_integrator.istio import destination_rule, probe
from istio_integrator.kube import cluster
from istio_integrator.situation import model
from istio_integrator.situation.model import Labels, NamedPorts


@dataclasses.dataclass(frozen=True)
class Member:
    """A pod in the mesh, or the expected next pod of a workload."""

    workload: str
    """The workload's name."""
    selector: Labels
    """The selector of the workload's pods; empty: it has none."""
    labels: Labels
    """The pod's labels, which selectors of Services and policies match."""
    ports: NamedPorts = frozenset()
    probed: frozenset[int] = frozenset()
    """Ports of probes that the injector did not rewrite."""
    scraped: frozenset[int] = frozenset()
    """Ports that its annotations have Prometheus scrape, unless the proxy serves the metrics."""
    foreseen: frozenset[int] = frozenset()
    """Ports of an expected pod's probes and metrics before the injector rewrites them."""
    untouched: frozenset[int] = frozenset()
    """Ports that its annotations exclude from interception."""
    touched: frozenset[int] | None = None
    """The only ports that its annotations have the proxy intercept; None: all ports."""

    def intercepts(self, port: int) -> bool:
        """Tell whether connections to a port go through the proxy."""
        if port in self.untouched or port in model.AGENT_PORTS:
            return False
        return self.touched is None or port in self.touched


@dataclasses.dataclass(frozen=True)
class PlainClients:
    """A DestinationRule by which clients in the mesh call a Service without Istio's mTLS."""

    reference: str
    service: str
    """The Service's name; `*`: all."""
    port: int = 0
    """The port of the Service; 0: all."""
    namespace: str = ""
    """The namespace of the DestinationRule."""


def members_of(found: model.Model) -> list[Member]:
    """List the pods in the mesh, and the expected next pod of each workload without a pod."""
    inside = [
        _member(pod, *found.workload_of(pod), is_injected=True)
        for pod in found.pods
        if pod.is_in_mesh and not pod.is_router and not pod.has_ended
    ]
    alive = [pod.labels for pod in found.pods if not pod.has_ended]
    absent = [
        each
        for each in found.workloads
        if each.selector and not any(each.selector <= labels for labels in alive)
    ]
    return inside + [
        _member(each.spec.template, each.selector, each.name, is_injected=False)
        for each in absent
        if not _stays_out(each.spec.template)
    ]


def plain_clients(
    objects: Iterable[cluster.Object], *, model_name: str, domain: str
) -> list[PlainClients]:
    """Read the DestinationRules by which clients do not use Istio's mTLS with the model."""

    def of(obj: cluster.Object) -> Iterable[PlainClients]:
        spec = cluster.at(obj, "spec")
        place = obj["metadata"]["namespace"]
        service = destination_rule.service_of_host(
            str(spec.get("host")), place, model_name, domain
        )
        parted = (cluster.at(each, "trafficPolicy") for each in cluster.parts(spec, "subsets"))
        for policy in (cluster.at(spec, "trafficPolicy"), *parted) if service else ():
            if _is_plain(policy):
                yield PlainClients(cluster.reference(obj), service, 0, place)
            for each in cluster.parts(policy, "portLevelSettings"):
                number = cluster.at(each, "port").get("number")
                if _is_plain(each) and pods.is_port(number):
                    yield PlainClients(cluster.reference(obj), service, number, place)

    return list(dict.fromkeys(cluster.read_each(objects, of)))


def _stays_out(template: model.Pod) -> bool:
    return (
        template.metadata.labels.get(names.INJECT) == "false"
        or template.spec.host_network
        or template.is_router
        or bool(template.metadata.annotations.get(names.TEMPLATES))
    )


def _member(pod: model.Pod, selector: Labels, workload: str, *, is_injected: bool) -> Member:
    """Read a pod; without `is_injected` it is one that the injector has not rewritten yet."""
    notes = pod.metadata.annotations
    is_probed = is_injected or not booleans.parse(notes.get(names.REWRITE_PROBES), default=True)
    is_scraped = is_injected or not booleans.parse(notes.get(names.MERGE_METRICS), default=True)
    probed = frozenset(each.port for each in pod.probes)
    scraped = _scraped(notes, pod.ports)
    included = notes.get(names.INCLUDED_INBOUND_PORTS, "*")
    return Member(
        workload=workload,
        selector=selector,
        labels=pod.labels,
        ports=pod.ports,
        probed=probed if is_probed else frozenset(),
        scraped=scraped if is_scraped else frozenset(),
        foreseen=frozenset() if is_injected else probed | scraped,
        untouched=frozenset(probe.ports(notes.get(names.EXCLUDED_INBOUND_PORTS))),
        touched=None if included.strip() == "*" else frozenset(probe.ports(included)),
    )


def _scraped(notes: Mapping[str, str], ports: NamedPorts) -> frozenset[int]:
    if notes.get(names.SCRAPE) != "true":
        return frozenset()
    if names.SCRAPE_PORT in notes:
        # Prometheus accepts one port, and so does the injector.
        return frozenset(probe.ports(notes[names.SCRAPE_PORT].replace(",", " ")))
    return frozenset(number for _, number in ports)


def _is_plain(policy: cluster.Object) -> bool:
    return cluster.at(policy, "tls").get("mode") in ("DISABLE", "SIMPLE", "MUTUAL")
