"""Can the gateway be reached, and who authenticates the requests there?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from integrator_contract import names
from integrator_contract.seen import Seen, Unseen
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.ingress import gateway as places
from istio_integrator.ingress import observed
from istio_integrator.istio.attachment import Attachment
from istio_integrator.kube import cluster, fences
from istio_integrator.messages import Message, Said, Severity

_FILTERS = (
    cluster.REQUEST_AUTHENTICATION,
    cluster.WASM_PLUGIN,
    cluster.AUTHORIZATION_POLICY,
)


@registry.check(
    "gateway",
    place=100,
    symptoms=("connection-refused-at-the-gateway",),
    look="juju config {application} gateway-service",
)
def gateway(facts: Facts) -> Iterable[Message]:
    """Show the gateway's address, and whether a pod of it is ready."""
    if not facts.exposes:
        yield Said.GATEWAY_NOT_USED()
        return
    if facts.mesh is None:
        return
    target = facts.gateway_choice
    if not isinstance(target, places.Target):
        yield target
        return
    yield from (each for each in target.messages if each.severity is not Severity.NOTE)
    where = f"{target.namespace}/{target.service}"
    for service in facts.objects(cluster.SERVICE):
        if observed.reference(service) == where:
            yield judge_address(service, target, facts.gateway_pods)


def judge_address(
    service: cluster.Object, target: places.Target, ready: Sequence[cluster.Object]
) -> Message:
    """Judge whether the gateway runs and can be reached from outside.

    Args:
        service: Of the gateway.
        target: The gateway.
        ready: The pods of the gateway that are ready.
    """
    if not ready:
        labels = ",".join(f"{key}={value}" for key, value in sorted(target.selector.items()))
        return Said.GATEWAY_WITHOUT_READY_POD(
            gateway=target.reference, namespace=target.namespace, labels=labels
        )
    spec = cluster.at(service, "spec")
    kind = spec.get("type", "ClusterIP")
    outside = [
        str(each.get("ip") or each.get("hostname"))
        for each in cluster.parts(cluster.at(service, "status", "loadBalancer"), "ingress")
    ] or [str(each) for each in cluster.items(spec, "externalIPs")]
    if kind == "LoadBalancer" and not outside:
        return Said.GATEWAY_WITHOUT_ADDRESS(namespace=target.namespace, service=target.service)
    address = ", ".join(outside) or f"{spec.get('clusterIP')} ({kind})"
    return Said.GATEWAY_REACHED(gateway=target.reference, address=address)


@registry.check("gateway filters", place=125, symptoms=("403-at-the-gateway",))
def gateway_filters(facts: Facts) -> Iterable[Message]:
    """Name what other teams have the gateway apply to requests before authentication."""
    if facts.gateway is None or facts.mesh is None:
        return
    objects = [each for kind in _FILTERS for each in facts.objects(kind)]
    root = facts.mesh.root_namespace
    found = list(judge_filters(objects, facts.gateway, facts.gateway_pods, root=root))
    yield from found or [Said.FILTERS_ABSENT()]


def judge_filters(
    objects: Iterable[cluster.Object],
    target: places.Target,
    pods: Sequence[cluster.Object],
    *,
    root: str,
) -> Iterable[Message]:
    """Name the objects that the gateway applies before this charm's authentication.

    Args:
        objects: RequestAuthentications, WasmPlugins and AuthorizationPolicies of any namespace.
        target: The gateway.
        pods: Of the gateway.
        root: The namespace whose objects apply everywhere.
    """
    referenced = {("Gateway", places.NAME), ("Service", target.service)}
    labels = [cluster.at(pod, "metadata", "labels") for pod in pods] or [dict(target.selector)]
    for each in objects:
        with fences.around(cluster.reference(each)):
            attachment = Attachment.of(each)
            action = cluster.at(each, "spec").get("action")
            is_other = each["kind"] == "AuthorizationPolicy" and action != "CUSTOM"
            if is_other or attachment.namespace not in (target.namespace, root):
                continue
            if referenced.intersection(attachment.targets) or any(
                attachment.includes(one, namespace=target.namespace, root_namespace=root)
                for one in labels
            ):
                yield Said.FILTER_BEFORE(
                    reference=cluster.reference(each),
                    namespace=attachment.namespace,
                    kind=each["kind"].lower(),
                    name=each["metadata"]["name"],
                )


@registry.check("authentication", place=130, symptoms=("403-at-the-gateway",))
def authentication(facts: Facts) -> Iterable[Message]:
    """Check whether the authorization service has pods, and the gateway's Envoy asks it."""
    if facts.gateway is None:
        return
    service = facts.authentication.service
    if facts.authentication.is_closed:
        return  # Nothing is served, as the status says.
    if service is None:
        yield Said.NOT_AUTHENTICATED(application=facts.application)
        return
    name, namespace, *_ = service.host.split(".")
    slices = facts.cluster.list(cluster.ENDPOINT_SLICE, namespace, {names.SERVICE_NAME: name})
    if not any(cluster.parts(each, "endpoints") for each in slices):
        yield Said.AUTHENTICATOR_WITHOUT_PODS(namespace=namespace, service=name)
    where = f"{service.host}:{service.port}"
    yield from judge_seen(facts.workload.seen(), where, application=facts.application)


def judge_seen(seen: Seen, service: str, *, application: str) -> Iterable[Message]:
    """Judge what the workload saw at the gateway. The status names what Envoy lacks."""
    if seen.unseen is Unseen.FORBIDDEN:
        yield Said.CHECK_FORBIDDEN(right=seen.detail, application=application)
    elif seen.unseen in (Unseen.UNREACHABLE, Unseen.TOO_LARGE):
        problem = f"the gateway's Envoy was not seen: {seen.detail}"
        yield Said.CHECK_FAILED(problem=problem, application=application)
    elif seen.guarded and not seen.missing:
        yield Said.AUTHENTICATED(service=service, ports=", ".join(map(str, seen.guarded)))
