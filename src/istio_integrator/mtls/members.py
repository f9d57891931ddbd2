"""The pods in the mesh, and the clients there that call without a certificate of the mesh."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from integrator_contract import booleans, names, pods
from istio_integrator.istio import destination_rule, probe, sidecar
from istio_integrator.kube import cluster
from istio_integrator.situation import model
from istio_integrator.situation.model import Labels, NamedPorts

PLAIN = ("DISABLE", "SIMPLE", "MUTUAL")
"""Modes of a DestinationRule by which clients send no certificate of the mesh."""


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
    """An object by which clients in the mesh call a Service without Istio's mTLS."""

    reference: str
    """A DestinationRule, or a Sidecar that hides the Service from their proxies."""
    service: str
    """The Service's name; `*`: all."""
    port: int = 0
    """The port of the Service; 0: all."""
    namespace: str = ""
    """The namespace of the object."""
    is_hidden: bool = False
    """Whether the object is a Sidecar."""


def list_members(found: model.Model) -> list[Member]:
    """List the pods in the mesh, and the expected next pod of each workload without a pod."""
    inside = [
        _read_member(pod, *found.find_workload(pod), is_injected=True)
        for pod in found.pods
        if pod.is_in_mesh and not pod.is_router
    ]
    alive = [pod.labels for pod in found.pods]
    absent = [
        each
        for each in found.workloads
        if each.selector and not any(each.selector <= labels for labels in alive)
    ]
    return inside + [
        _read_member(each.spec.template, each.selector, each.name, is_injected=False)
        for each in absent
        if not _is_outside_mesh(each.spec.template)
    ]


def list_rule_clients(
    objects: Iterable[cluster.Object],
    modes: Collection[str] = PLAIN,
    *,
    model_name: str,
    domain: str,
) -> list[PlainClients]:
    """Read the DestinationRules that set one of these TLS modes for calls to the model."""

    def read_mode(policy: cluster.Object) -> object:
        return cluster.at(policy, "tls").get("mode")

    def read_clients(obj: cluster.Object) -> Iterable[PlainClients]:
        spec = cluster.at(obj, "spec")
        place = obj["metadata"]["namespace"]
        service = destination_rule.find_service(str(spec.get("host")), place, model_name, domain)
        parted = (cluster.at(each, "trafficPolicy") for each in cluster.parts(spec, "subsets"))
        for policy in (cluster.at(spec, "trafficPolicy"), *parted) if service else ():
            if read_mode(policy) in modes:
                yield PlainClients(cluster.reference(obj), service, 0, place)
            for each in cluster.parts(policy, "portLevelSettings"):
                number = cluster.at(each, "port").get("number")
                if read_mode(each) in modes and pods.is_port(number):
                    yield PlainClients(cluster.reference(obj), service, number, place)

    return list(dict.fromkeys(cluster.read_each(objects, read_clients)))


def list_blind_clients(
    objects: Iterable[cluster.Object],
    services: Iterable[model.Service],
    *,
    model_name: str,
    root_namespace: str,
    domain: str,
) -> list[PlainClients]:
    """Read the Sidecars that hide the model's Services from proxies, which then call by address.

    The Sidecar of the root namespace applies to namespaces that have none for all their pods. Its
    effect on the model itself is returned with the model as its namespace.
    """
    found = list(objects)
    hosts = {each.name: f"{each.name}.{model_name}.svc.{domain}" for each in services}
    has_own = any(
        each["metadata"]["namespace"] == model_name
        and not cluster.at(each, "spec", "workloadSelector")
        for each in found
    )

    def read_clients(obj: cluster.Object) -> Iterable[PlainClients]:
        spec, place = cluster.at(obj, "spec"), obj["metadata"]["namespace"]
        places = [place]
        if place == root_namespace != model_name and not has_own:
            places.append(model_name)
        for each in places:
            scope = {"namespace": model_name, "from_namespace": each}
            for name, host in hosts.items():
                if sidecar.hides_service(spec, host, **scope):
                    yield PlainClients(cluster.reference(obj), name, 0, each, is_hidden=True)

    return cluster.read_each(found, read_clients)


def _is_outside_mesh(template: model.Pod) -> bool:
    return (
        template.metadata.labels.get(names.INJECT) == "false"
        or template.spec.host_network
        or not template.spec.may_run_on_linux
        or template.is_router
        or bool(template.metadata.annotations.get(names.TEMPLATES))
    )


def _read_member(pod: model.Pod, selector: Labels, workload: str, *, is_injected: bool) -> Member:
    """Read a pod; without `is_injected` it is one that the injector has not rewritten yet."""
    notes = pod.metadata.annotations
    is_probed = is_injected or not booleans.parse(notes.get(names.REWRITE_PROBES), default=True)
    is_scraped = is_injected or not booleans.parse(notes.get(names.MERGE_METRICS), default=True)
    probed = frozenset(each.port for each in pod.probes)
    scraped = _read_scraped_ports(notes, pod.ports)
    included = notes.get(names.INCLUDED_INBOUND_PORTS, "*")
    return Member(
        workload=workload,
        selector=selector,
        labels=pod.labels,
        ports=pod.ports,
        probed=probed if is_probed else frozenset(),
        scraped=scraped if is_scraped else frozenset(),
        foreseen=frozenset() if is_injected else probed | scraped,
        untouched=frozenset(probe.parse_ports(notes.get(names.EXCLUDED_INBOUND_PORTS))),
        touched=None if included.strip() == "*" else frozenset(probe.parse_ports(included)),
    )


def _read_scraped_ports(notes: Mapping[str, str], ports: NamedPorts) -> frozenset[int]:
    if notes.get(names.SCRAPE) != "true":
        return frozenset()
    if names.SCRAPE_PORT in notes:
        # Prometheus accepts one port, and so does the injector.
        return frozenset(probe.parse_ports(notes[names.SCRAPE_PORT].replace(",", " ")))
    return frozenset(number for _, number in ports)
