"""Can API servers call the webhooks in the model, in spite of mutual TLS and policies?"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.istio import authorization_policy, peer_authentication
from istio_integrator.kube import cluster, errors, fences
from istio_integrator.situation import model

_MODELOPERATOR = {names.MODELOPERATOR_LABELS[0]: names.MODELOPERATOR}
"""The labels of Juju's own webhook, whose next pod our admission keeps outside."""


@dataclasses.dataclass(frozen=True)
class Backend:
    """A pod of the mesh that API servers call."""

    webhook: str
    """The configuration that names it."""
    pod: cluster.Object
    port: int
    """Of the pod."""


@registry.check("webhooks", place=170, feeds_status=True, symptoms=("failed-calling-webhook",))
def webhooks(facts: Facts) -> Iterable[Finding]:
    """Check whether policies and mutual TLS keep API servers from webhooks in the model."""
    if facts.mesh is None:
        return
    configurations, unknown = facts.objects(cluster.MUTATING_WEBHOOK), None
    try:
        configurations = [*configurations, *facts.objects(cluster.VALIDATING_WEBHOOK)]
    except errors.ForbiddenError as error:
        # Only an optional role gives this right; the others are judged without.
        unknown = error
    calls = model.calls(configurations, model=facts.model)
    found: Sequence[Backend] = ()
    if calls:
        services = model.read(facts.objects(cluster.SERVICE, facts.model), model.Service)
        found = backends(calls, services, facts.pods)
    # Policies of all namespaces are only asked for where one could be in the way.
    policies = facts.policies if found else ()
    peers = facts.objects(cluster.PEER_AUTHENTICATION) if found else ()
    root = facts.mesh.root_namespace
    yield from judge(
        found,
        policies,
        peer_authentication.read_all(peers),
        root=root,
        application=facts.application,
    )
    if unknown is not None:
        raise unknown


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
    found: Collection[Backend],
    policies: Collection[authorization_policy.AuthorizationPolicy],
    peers: Collection[peer_authentication.PeerAuthentication],
    *,
    root: str,
    application: str,
) -> Iterable[Finding]:
    """Judge whether API servers, which are not in the mesh, reach the model's webhooks."""
    is_fine = True
    for each in found:
        with fences.around(cluster.reference(each.pod)):
            by = obstacle(each.pod, policies, peers, root=root, port=each.port)
            if by:
                is_fine = False
                yield findings.broken(
                    f"{cluster.reference(each.pod)} is in the mesh and {by}, so webhook "
                    f"{each.webhook} can't be called",
                    _way_out(each.pod, application),
                )
    if found and is_fine:
        yield findings.fine("API servers can call the webhooks in the model")


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
        return f"{decided.policy.reference} asks for mutual TLS"
    denied = authorization_policy.decide(
        [each for each in policies if each.selects(pod, root)],
        authorization_policy.Caller(),
        authorization_policy.InboundRequest(port=port, seen_by="tcp"),
    )
    return f"{denied.policy.reference} denies" if denied.policy else ""


def _way_out(pod: cluster.Object, application: str) -> str:
    metadata = pod["metadata"]
    again = f"kubectl -n {metadata['namespace']} delete pod {metadata['name']}"
    marks = cluster.at(metadata, "labels")
    key = names.NAME if names.NAME in marks else "app"
    if _MODELOPERATOR.items() <= marks.items() or key not in marks:
        return again
    return f"juju config {application} excluded-pods={key}={marks[key]} && {again}"
