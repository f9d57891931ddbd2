"""Can API servers call the webhooks in the model, in spite of mutual TLS and policies?"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from integrator_contract import names
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.istio import authorization_policy, peer_authentication
from istio_integrator.kube import cluster, fences
from istio_integrator.messages import Message, Said
from istio_integrator.situation import model

_MODELOPERATOR = {names.MODELOPERATOR_LABELS[0]: names.MODELOPERATOR}
"""The labels of Juju's own webhook, whose next pod our admission keeps outside."""


class Backend(NamedTuple):
    """A pod of the mesh that API servers call."""

    webhook: str
    """The configuration that names it."""
    pod: cluster.Object
    port: int
    """Of the pod."""


@registry.check("webhooks", place=170, feeds_status=True, symptoms=("failed-calling-webhook",))
def webhooks(facts: Facts) -> Iterable[Message]:
    """Check whether policies and mutual TLS keep API servers from webhooks in the model."""
    if facts.mesh is None:
        return
    found: list[Backend] = []
    wrong: list[Message] = []
    # An optional role gives the right to the latter, without which the check ends there.
    for kind in (cluster.MUTATING_WEBHOOK, cluster.VALIDATING_WEBHOOK):
        if not (calls := model.calls(facts.objects(kind), model=facts.model)):
            continue
        services = model.read(facts.objects(cluster.SERVICE, facts.model), model.Service)
        if not (called_pods := backends(calls, services, facts.pods)):
            continue
        found += called_pods
        peers = peer_authentication.read_all(facts.objects(cluster.PEER_AUTHENTICATION))
        root = facts.mesh.root_namespace
        for each in judge(
            called_pods, facts.policies, peers, root=root, application=facts.application
        ):
            wrong.append(each)
            yield each
    if found and not wrong:
        yield Said.WEBHOOKS_REACHED()


def backends(
    calls: Iterable[model.Call],
    services: Collection[model.Service],
    pods: Collection[cluster.Object],
) -> list[Backend]:
    """List the pods of the mesh that API servers call."""
    found: list[Backend] = []
    for call in calls:
        for service in services:
            ports = [port for port in service.ports if port.port == call.port]
            if service.name != call.service or not service.selector or not ports:
                continue
            for pod in pods:
                for one in model.read([pod], model.Pod):
                    if service.selector <= one.labels and one.is_in_mesh:
                        webhook = call.caller.rpartition(" ")[2]
                        found += (Backend(webhook, pod, port) for port in ports[0].at(one.ports))
    return found


def judge(
    found: Iterable[Backend],
    policies: Collection[authorization_policy.AuthorizationPolicy],
    peers: Collection[peer_authentication.PeerAuthentication],
    *,
    root: str,
    application: str,
) -> Iterable[Message]:
    """Name the webhooks that API servers, which are not in the mesh, do not reach."""
    for each in found:
        reference = cluster.reference(each.pod)
        with fences.around(reference):
            if by := obstacle(each.pod, policies, peers, root=root, port=each.port):
                yield Said.WEBHOOK_NOT_REACHED(
                    pod=reference,
                    obstacle=by,
                    webhook=each.webhook,
                    command=_way_out(each.pod, application),
                )


def obstacle(
    pod: cluster.Object,
    policies: Iterable[authorization_policy.AuthorizationPolicy],
    peers: Collection[peer_authentication.PeerAuthentication],
    *,
    root: str,
    port: int,
) -> str:
    """Name the policy that keeps API servers from calling a pod in the mesh; empty if none does.

    They call from outside of the mesh, without a certificate of it, and over TLS that the proxy
    can't look into.
    """
    metadata = cluster.at(pod, "metadata")
    decided = peer_authentication.decide(
        peers,
        cluster.at(metadata, "labels"),
        namespace=metadata["namespace"],
        root_namespace=root,
        port=port,
    )
    if decided.is_strict and decided.policy is not None:
        return f"{decided.policy.reference} requires mutual TLS"
    denied = authorization_policy.decide(
        [each for each in policies if each.selects(pod, root)],
        authorization_policy.Caller(),
        authorization_policy.InboundRequest(port=port, seen_by="tcp"),
    )
    return f"{denied.policy.reference} denies the call" if denied.policy else ""


def _way_out(pod: cluster.Object, application: str) -> str:
    metadata = pod["metadata"]
    again = f"kubectl -n {metadata['namespace']} delete pod {metadata['name']}"
    marks = cluster.at(metadata, "labels")
    key = names.NAME if names.NAME in marks else "app"
    if _MODELOPERATOR.items() <= marks.items() or key not in marks:
        return again
    return f"juju config {application} excluded-pods={key}={marks[key]} && {again}"
