"""Can clients reach the gateway, and which service authenticates requests there?"""

from __future__ import annotations

from collections.abc import Iterable

from integrator_contract import names
from istio_integrator.asked import gateway as places
from istio_integrator.diagnosis import registry
from istio_integrator.facts import Facts
from istio_integrator.istio.authorization_policy import Attachment
from istio_integrator.kube import cluster, fences
from istio_integrator.messages import Message, Severity, Template

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
def check_gateway(facts: Facts) -> Iterable[Message]:
    """Show the gateway's address, once a pod of it is ready."""
    if not facts.situation.is_exposed:
        yield Template.GATEWAY_NOT_USED()
        return
    if facts.mesh is None:
        return
    target = facts.gateway_target
    if not isinstance(target, places.Target):
        yield target
        return
    yield from (each for each in target.messages if each.severity is not Severity.NOTE)
    service = facts.situation.cluster.get(cluster.SERVICE, target.service, target.namespace)
    if service is None or not facts.gateway_pods:
        return  # The status reports a gateway that is not ready.
    spec = cluster.at(service, "spec")
    kind = spec.get("type", "ClusterIP")
    outside = [
        str(each.get("ip") or each.get("hostname"))
        for each in cluster.parts(cluster.at(service, "status", "loadBalancer"), "ingress")
    ] or [str(each) for each in cluster.items(spec, "externalIPs")]
    if kind == "LoadBalancer" and not outside:
        yield Template.GATEWAY_WITHOUT_ADDRESS(service=target.service, namespace=target.namespace)
    else:
        address = ", ".join(outside) or f"{spec.get('clusterIP')} ({kind})"
        yield Template.GATEWAY_REACHED(gateway=target.reference, address=address)


@registry.check("gateway filters", place=125, symptoms=("403-at-the-gateway",))
def check_filters(facts: Facts) -> Iterable[Message]:
    """Name what other teams have the gateway apply to requests before authentication."""
    target = facts.gateway
    if target is None or facts.mesh is None:
        return
    root, namespace = facts.mesh.settings.root_namespace, target.namespace
    referenced = {("Gateway", places.NAME), ("Service", target.service)}
    labels = [pod.metadata.labels for pod in facts.gateway_pods] or [dict(target.selector)]
    found: list[Message] = []
    for each in (obj for kind in _FILTERS for obj in facts.situation.cluster.list(kind)):
        with fences.isolate(cluster.reference(each)):
            attachment = Attachment.from_object(each)
            action = cluster.at(each, "spec").get("action")
            is_other = each["kind"] == "AuthorizationPolicy" and action != "CUSTOM"
            if is_other or attachment.namespace not in (namespace, root):
                continue
            if referenced.intersection(attachment.targets) or any(
                attachment.selects(one, namespace, root) for one in labels
            ):
                found.append(
                    Template.FILTER_BEFORE(
                        reference=cluster.reference(each),
                        namespace=attachment.namespace,
                        kind=each["kind"].lower(),
                        name=each["metadata"]["name"],
                    )
                )
    yield from found or [Template.FILTERS_ABSENT()]


@registry.check("hosts elsewhere", place=127, symptoms=("404-at-the-gateway",))
def check_hosts_elsewhere(facts: Facts) -> Iterable[Message]:
    """Name other teams' Gateways, Ingresses and HTTPRoutes that have a host of the model."""
    target = facts.gateway
    if target is None or target.is_own:
        return
    is_ours = facts.situation.manifests.is_ours
    for kind in (cluster.GATEWAY, cluster.INGRESS, cluster.HTTP_ROUTE):
        for obj in facts.situation.cluster.stream(kind):
            with fences.isolate(cluster.reference(obj)):
                selected = cluster.at(obj, "spec", "selector").items()
                # A Gateway at pods elsewhere does not change the routes of this one.
                is_elsewhere = kind == cluster.GATEWAY and not selected <= target.selector.items()
                shared = sorted({*_read_hosts(obj)}.intersection(target.hosts))
                if shared and not is_elsewhere and not is_ours(obj):
                    metadata = obj["metadata"]
                    yield Template.HOST_ELSEWHERE(
                        reference=cluster.reference(obj),
                        host=shared[0],
                        namespace=metadata["namespace"],
                        kind=kind.plural,
                        name=metadata["name"],
                    )


def _read_hosts(obj: cluster.Object) -> Iterable[str]:
    """List the hosts of a Gateway, an Ingress or an HTTPRoute."""
    spec = cluster.at(obj, "spec")
    yield from (str(host).lower() for host in cluster.items(spec, "hostnames"))
    yield from (str(rule.get("host")).lower() for rule in cluster.parts(spec, "rules"))
    for server in cluster.parts(spec, "servers"):
        hosts = (str(host).rpartition("/")[2] for host in cluster.items(server, "hosts"))
        yield from (host.lower() for host in hosts)


@registry.check("authentication", place=130, symptoms=("403-at-the-gateway",))
def check_authentication(facts: Facts) -> Iterable[Message]:
    """Check whether the authorization service has pods, and the gateway's Envoy calls it."""
    if facts.gateway is None or facts.authentication.is_closed:
        return  # The gateway serves no routes, which the status reports.
    service, application = facts.authentication.service, facts.situation.application
    if service is None:
        yield Template.NOT_AUTHENTICATED(application=application)
        return
    name, namespace, *_ = service.host.split(".")
    slices = facts.situation.cluster.list(
        cluster.ENDPOINT_SLICE, namespace, {names.SERVICE_NAME: name}
    )
    if not any(cluster.parts(each, "endpoints") for each in slices):
        yield Template.AUTHENTICATOR_WITHOUT_PODS(namespace=namespace, service=name)
    seen = facts.envoy_state
    # The status reports an Envoy that is not seen, and the parts that it lacks.
    if seen and seen.guarded and not seen.missing:
        where = f"{service.host}:{service.port}"
        yield Template.AUTHENTICATED(service=where, ports=", ".join(map(str, seen.guarded)))
