"""Can API servers call the webhooks in the model, in spite of mutual TLS and policies?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from integrator_contract import names
from istio_integrator.diagnosis import registry
from istio_integrator.facts import Facts
from istio_integrator.istio import authorization_policy, installation, peer_authentication
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Template
from istio_integrator.situation import model


@registry.check("webhooks", place=170, feeds_status=True, symptoms=("failed-calling-webhook",))
def check_webhooks(facts: Facts) -> Iterable[Message]:
    """Check whether policies and mutual TLS keep API servers from webhooks in the model."""
    if facts.mesh is None:
        return
    is_called = is_wrong = False
    # The permission to list the latter comes from an optional role. Without it the check ends
    # there.
    for kind in (cluster.MUTATING_WEBHOOK, cluster.VALIDATING_WEBHOOK):
        for call in model.list_calls(
            facts.situation.cluster.list(kind), model=facts.situation.model
        ):
            for pod, port in _find_backends(facts, call):
                is_called = True
                if by := _find_obstacle(facts, facts.mesh, pod, port):
                    is_wrong = True
                    yield Template.WEBHOOK_NOT_REACHED(
                        pod=pod.reference,
                        obstacle=by,
                        webhook=call.caller.rpartition(" ")[2],
                        command=_make_exclusion_command(pod, facts.situation.application),
                    )
    if is_called and not is_wrong:
        yield Template.WEBHOOKS_REACHED()


def _find_backends(facts: Facts, call: model.Call) -> Iterator[tuple[model.Pod, int]]:
    for service in facts.services:
        ports = [port for port in service.ports if port.port == call.port]
        if service.name == call.service and service.selector and ports:
            for pod in facts.pods:
                if service.selector <= pod.labels and pod.is_in_mesh:
                    yield from ((pod, port) for port in ports[0].resolve_ports(pod.ports))


def _find_obstacle(facts: Facts, mesh: installation.Mesh, pod: model.Pod, port: int) -> str:
    """Return the policy that keeps API servers from calling a pod in the mesh; empty: none.

    API servers are outside of the mesh, have no certificate of it, and use TLS that the proxy
    can't decrypt.
    """
    root, meta = mesh.settings.root_namespace, pod.metadata
    decided = peer_authentication.decide_mode(
        facts.peer_authentications, meta.labels, meta.namespace, root, port
    )
    if decided.is_strict and decided.policy is not None:
        return f"{decided.policy.reference} requires mutual TLS"
    denied = authorization_policy.decide(
        [each for each in facts.policies if each.selects(meta.labels, meta.namespace, root)],
        caller="",
        request=authorization_policy.InboundRequest(port=port, seen_by="tcp"),
    )
    return f"{denied.policy.reference} denies the call" if denied.policy else ""


def _make_exclusion_command(pod: model.Pod, application: str) -> str:
    again = f"kubectl -n {pod.metadata.namespace} delete pod {pod.metadata.name}"
    marks = pod.metadata.labels
    key = names.NAME if names.NAME in marks else "app"
    # This charm's admission keeps the next pod of Juju's modeloperator out of the mesh.
    if names.is_modeloperator(marks) or key not in marks:
        return again
    return f"juju config {application} excluded-pods={key}={marks[key]} && {again}"
