"""The workload of the model's own gateway, and Gateways that take its ports."""

from __future__ import annotations

from collections.abc import Iterator

from istio_integrator.asked import gateway
from istio_integrator.istio import installation
from istio_integrator.kube import cluster, errors, fences
from istio_integrator.messages import Message, Template
from istio_integrator.situation.situation import Situation

FOLDER = "gateway-workload"
_PORTS = (80, 443, 8080, 8443)
"""Numbers by which a Gateway opens the ports for HTTP: those of the Service and of the pods."""
_TCP = ("TCP", "MONGO", "MYSQL", "REDIS")
"""Protocols for which a port has no HTTP."""


def apply(situation: Situation, mesh: installation.Mesh, target: gateway.Target) -> Message | None:
    """Deploy the gateway, unless an object of another owner has its name.

    istiod injects its template for gateways.
    """
    context = {
        "name": target.service,
        "account": target.accounts[0],
        "model": situation.model,
        "pod_labels": target.selector,
        "inject_labels": mesh.pod_labels,
        "options": situation.config,
    }
    try:
        situation.manifests.apply(FOLDER, context)
    except errors.ForeignError as error:
        application = situation.application
        return Template.GATEWAY_OF_OTHER_OWNER(
            owner=error.owner, reference=error.reference, application=application
        )
    return None


def report_port_conflicts(
    situation: Situation, target: gateway.Target, opened: cluster.Object | None
) -> Iterator[Message]:
    """Name Gateways that take a port for TCP, which the workload denies.

    istiod ignores a server of a Gateway younger than this charm's, unless it has an address.
    """
    since = cluster.rank_by_age(opened) if opened else None
    pods = situation.cluster.list(cluster.POD, situation.model, dict(target.selector))
    labels = [target.selector, *(cluster.at(pod, "metadata", "labels") for pod in pods)]
    for each in situation.cluster.stream(cluster.GATEWAY):
        with fences.isolate(cluster.reference(each)):
            metadata, spec = each["metadata"], cluster.at(each, "spec")
            selector = cluster.at(spec, "selector").items()
            if not any(selector <= one.items() for one in labels):
                continue
            is_first = since is None or cluster.rank_by_age(each) <= since
            for server in cluster.parts(spec, "servers"):
                port = cluster.at(server, "port")
                is_tcp = str(port.get("protocol")).upper() in _TCP
                if is_tcp and port.get("number") in _PORTS and server.get("bind", is_first):
                    name = {key: metadata[key] for key in ("namespace", "name")}
                    yield Template.PORT_TAKEN(port=port["number"], **name)
