"""Can the gateway be reached, and what is applied there before authentication?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.ingress import gateway as places
from istio_integrator.istio.attachment import Attachment
from istio_integrator.kube import cluster, fences
from istio_integrator.messages import Severity


@registry.check("gateway", place=100, symptoms=("connection-refused-at-the-gateway",))
def gateway(facts: Facts) -> Iterable[Finding]:
    """Show the gateway's address, and whether a pod of it is ready."""
    if not facts.exposes:
        yield findings.fine("not in use: nothing is related to ingress")
        return
    if facts.mesh is None:
        return
    target = facts.gateway_choice
    is_known = isinstance(target, places.Target)
    shown = f"juju config {facts.application} gateway-service"
    said = target.messages if is_known else (target,)
    problems = [each for each in said if each.severity is not Severity.NOTE]
    yield from report.of_messages(problems, shown)
    if not is_known:
        return
    where = (target.service, target.namespace)
    service = next(
        (
            each
            for each in facts.objects(cluster.SERVICE)
            if (each["metadata"]["name"], each["metadata"]["namespace"]) == where
        ),
        None,
    )
    if service is None:
        return  # It has gone since the gateway was resolved.
    yield judge_address(service, target, facts.gateway_pods)


@registry.check("gateway filters", place=125, symptoms=("403-at-the-gateway",))
def gateway_filters(facts: Facts) -> Iterable[Finding]:
    """Name what other teams have the gateway apply to requests before authentication."""
    if facts.gateway is None or facts.mesh is None:
        return
    kinds = (
        cluster.REQUEST_AUTHENTICATION,
        cluster.WASM_PLUGIN,
        cluster.AUTHORIZATION_POLICY,
    )
    objects = [each for kind in kinds for each in facts.objects(kind)]
    root = facts.mesh.root_namespace
    found = list(judge_filters(objects, facts.gateway, facts.gateway_pods, root=root))
    yield from found or [findings.fine("no other team authenticates requests at the gateway")]


def judge_filters(
    objects: Iterable[cluster.Object],
    target: places.Target,
    pods: Sequence[cluster.Object],
    *,
    root: str,
) -> Iterable[Finding]:
    """Name what other teams have the gateway apply to requests before this charm's authentication.

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
            spec, attachment = cluster.at(each, "spec"), Attachment.of(each)
            is_other = each["kind"] == "AuthorizationPolicy" and spec.get("action") != "CUSTOM"
            if is_other or attachment.namespace not in (target.namespace, root):
                continue
            if referenced.intersection(attachment.targets) or any(
                attachment.includes(one, namespace=target.namespace, root_namespace=root)
                for one in labels
            ):
                kind, name = each["kind"].lower(), each["metadata"]["name"]
                yield findings.doubtful(
                    f"{cluster.reference(each)} is applied at the gateway before "
                    "authentication, and may reject requests",
                    f"kubectl -n {attachment.namespace} get {kind} {name} -o yaml",
                )


def judge_address(
    service: cluster.Object, target: places.Target, pods: Sequence[cluster.Object]
) -> Finding:
    """Judge whether the gateway runs and can be reached from outside.

    Args:
        service: Of the gateway.
        target: The gateway.
        pods: Of the gateway, those that are ready.
    """
    name = f"Service {target.namespace}/{target.service}"
    show = f"kubectl -n {target.namespace} describe service {target.service}"
    if not pods:
        labels = ",".join(f"{key}={value}" for key, value in sorted(target.selector.items()))
        look = f"kubectl -n {target.namespace} get pods -l {labels}"
        return findings.broken(f"gateway {target.reference} has no ready pod", look)
    spec = cluster.at(service, "spec")
    kind = spec.get("type", "ClusterIP")
    outside = [
        str(each.get("ip") or each.get("hostname"))
        for each in cluster.parts(cluster.at(service, "status", "loadBalancer"), "ingress")
    ] or [str(each) for each in cluster.items(spec, "externalIPs")]
    if kind == "LoadBalancer" and not outside:
        return findings.doubtful(f"{name} is a LoadBalancer and nobody gave it an address", show)
    shown = ", ".join(outside) or f"{spec.get('clusterIP')} ({kind})"
    return findings.fine(f"{target.reference} is reached at {shown}")
