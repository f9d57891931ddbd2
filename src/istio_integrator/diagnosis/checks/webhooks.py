"""Can API servers call the webhooks in the model, in spite of mutual TLS and policies?"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts, target_port
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, errors, fences
from istio_integrator.mesh import plaintext

_MODELOPERATOR = {names.MODELOPERATOR_LABELS[0]: names.MODELOPERATOR}
"""The labels of Juju's own webhook; our admission sees to it that its next pod stays outside."""


@dataclasses.dataclass(frozen=True)
class Backend:
    """A pod that API servers call."""

    webhook: str
    """The configuration that names it."""
    pod: cluster.Object
    port: int
    """Of the pod."""


@registry.check(
    "webhooks",
    place=170,
    question="can API servers call those in the model in spite of mutual TLS and policies",
    reads="webhook configurations, Services, AuthorizationPolicies, PeerAuthentications",
    feeds_status=True,
    symptoms=("failed-calling-webhook",),
)
def webhooks(facts: Facts) -> Iterable[Finding]:
    """Look at the pods that webhook configurations name, and at the policies that select them."""
    if facts.mesh is None:
        return
    backends, unknown = _backends(facts, cluster.MUTATING_WEBHOOK), None
    try:
        backends = [*backends, *_backends(facts, cluster.VALIDATING_WEBHOOK)]
    except errors.ForbiddenError as error:
        # Only an optional role gives this right; the others are judged without.
        unknown = error
    # Policies of all namespaces are only asked for where one could be in the way.
    is_meshed = any(_is_in_mesh(each.pod) for each in backends)
    yield from judge(
        backends,
        facts.policies if is_meshed else (),
        root=facts.mesh.root_namespace,
        application=facts.application,
    )
    if unknown is not None:
        raise unknown


def _is_in_mesh(pod: cluster.Object) -> bool:
    with fences.around(cluster.reference(pod)):
        return plaintext.is_in_mesh(pod)
    return False


def _backends(facts: Facts, kind: cluster.Kind) -> list[Backend]:
    """List the pods in the model that API servers call, by a kind of webhook configuration."""
    found: list[Backend] = []
    for configuration in facts.objects(kind):
        with fences.around(cluster.reference(configuration)):
            for hook in cluster.parts(configuration, "webhooks"):
                found += _behind(facts, configuration, hook)
    return list({(id(each.pod), each.port): each for each in found}.values())


def _behind(
    facts: Facts, configuration: cluster.Object, hook: cluster.Object
) -> Iterable[Backend]:
    asked = cluster.at(hook, "clientConfig", "service")
    if asked.get("namespace") != facts.model:
        return
    for service in facts.objects(cluster.SERVICE, facts.model):
        selector = cluster.at(service, "spec", "selector")
        if service["metadata"]["name"] != asked.get("name") or not selector:
            continue
        for pod in facts.pods:
            if selector.items() <= cluster.at(pod, "metadata", "labels").items():
                port = target_port(service, pod, int(asked.get("port") or 443))
                yield Backend(configuration["metadata"]["name"], pod, port)


def judge(
    backends: Iterable[Backend],
    policies: Collection[cluster.Object],
    *,
    root: str,
    application: str,
) -> Iterable[Finding]:
    """Judge whether API servers, which are not in the mesh, reach the model's webhooks."""
    count = 0
    for each in backends:
        with fences.around(cluster.reference(each.pod)):
            found = ""
            if plaintext.is_in_mesh(each.pod):
                found = plaintext.obstacle(each.pod, policies, root_namespace=root, port=each.port)
            if found:
                yield findings.broken(
                    f"{cluster.reference(each.pod)} is in the mesh and {found}, so webhook "
                    f"{each.webhook} can't be called",
                    _way_out(each.pod, application),
                )
            else:
                count += 1
    if count:
        yield findings.fine(f"API servers can call {count} webhooks in the model")


def _way_out(pod: cluster.Object, application: str) -> str:
    metadata = pod["metadata"]
    again = f"kubectl -n {metadata['namespace']} delete pod {metadata['name']}"
    if _MODELOPERATOR.items() <= cluster.at(metadata, "labels").items():
        return again
    for key in (names.NAME, "app"):
        if value := cluster.at(metadata, "labels").get(key):
            return f"juju config {application} excluded-pods={key}={value} && {again}"
    return again
