"""Reads who in the mesh takes calls without its certificates, and which clients make them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from integrator_contract import booleans, names, pods
from istio_integrator.istio import probe
from istio_integrator.kube import cluster
from istio_integrator.situation import model
from istio_integrator.situation.model import Labels, NamedPorts


@dataclasses.dataclass(frozen=True)
class Member:
    """A pod in the mesh, or what the next pod of a workload will be."""

    workload: str
    """The name of what it is a pod of."""
    selector: Labels
    """What chooses the workload's pods; empty: nothing does."""
    labels: Labels
    """The pod's, which Services and policies choose by."""
    ports: NamedPorts = frozenset()
    probed: frozenset[int] = frozenset()
    """What the kubelet calls by itself, for the injector did not rewrite it."""
    scraped: frozenset[int] = frozenset()
    """What its annotations have Prometheus call, where the proxy does not serve it itself."""
    foreseen: frozenset[int] = frozenset()
    """Of a pod to come: what the kubelet or Prometheus would call, were it not rewritten."""
    untouched: frozenset[int] = frozenset()
    """Ports that its annotations keep from the proxy."""
    touched: frozenset[int] | None = None
    """The only ports that reach the proxy, where its annotations say so."""

    def intercepts(self, port: int) -> bool:
        """Tell whether the proxy gets the connections to a port."""
        if port in self.untouched or port in model.AGENT_PORTS:
            return False
        return self.touched is None or port in self.touched


@dataclasses.dataclass(frozen=True)
class PlainClients:
    """A DestinationRule by which clients in the mesh call a Service without its certificates."""

    reference: str
    service: str
    """Its name; `*` for all."""
    port: int = 0
    """Of the Service; 0: all."""
    namespace: str = ""
    """Where the DestinationRule is."""


def members_of(found: model.Model) -> list[Member]:
    """List the pods in the mesh, and for each workload without a pod what its next one will be."""
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
    """Read the DestinationRules by which Services of the model are called without certificates."""

    def of(obj: cluster.Object) -> Iterable[PlainClients]:
        spec = cluster.at(obj, "spec")
        place = obj["metadata"]["namespace"]
        service = _service_of_host(str(spec.get("host")), place, model_name, domain)
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
    """Read a pod; one that is not injected has what the injector is going to rewrite."""
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
        # Prometheus takes one, and so does the injector.
        return frozenset(probe.ports(notes[names.SCRAPE_PORT].replace(",", " ")))
    return frozenset(number for _, number in ports)


def _service_of_host(host: str, namespace: str, model_name: str, domain: str) -> str:
    """Name the model's Service that a host is, `*` for all of them, empty for none."""
    if host.startswith("*"):
        return "*" if f"x.{model_name}.svc.{domain}".endswith(host.removeprefix("*")) else ""
    host = host.removesuffix(f".svc.{domain}").removesuffix(".svc")
    name, dot, place = host.partition(".")
    return name if (place if dot else namespace) == model_name else ""


def _is_plain(policy: cluster.Object) -> bool:
    return cluster.at(policy, "tls").get("mode") in ("DISABLE", "SIMPLE", "MUTUAL")
