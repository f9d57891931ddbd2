"""Can the ingress gateway be reached, and does it listen at our ports?"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import ops

from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts, target_port
from istio_integrator.findings import Finding
from istio_integrator.ingress import gateway as places
from istio_integrator.kube import cluster, documents, fences, streams


@registry.check(
    "gateway",
    place=100,
    question="its address, and whether it listens at the ports of this model's Gateway",
    reads="its Service, its Envoy",
    symptoms=("connection-refused-at-the-gateway",),
)
def gateway(facts: Facts) -> Iterable[Finding]:
    """Look at the gateway's address and ports."""
    if not facts.exposes:
        yield findings.fine("not in use: nothing is related to ingress")
        return
    if facts.mesh is None:
        return
    target = facts.gateway_choice
    is_known = isinstance(target, places.Target)
    shown = f"juju config {facts.application} gateway-service"
    for problem in target.problems if is_known else (target,):
        yield from report.of_statuses([ops.BlockedStatus(problem.message)], shown)
    if not is_known:
        return
    service = facts.service(target.service, target.namespace)
    yield from judge_address(service, target)
    if service is not None and facts.own_gateway is not None:
        for pod in facts.gateway_pods[:1]:
            istio = facts.mesh
            yield from judge_listeners(
                facts.own_gateway,
                service,
                pod,
                _listening(facts, pod),
                log=f"-n {istio.namespace} deploy/{istio.service}"
                if istio.namespace
                else f"-n {pod['metadata']['namespace']} {pod['metadata']['name']}",
            )


def _listening(facts: Facts, pod: cluster.Object) -> set[int]:
    """List the ports at which a pod's Envoy has a listener."""
    text = facts.envoy(pod, "/listeners?format=json")
    found: set[int] = set()
    with fences.around(cluster.reference(pod)):
        answer = {"answer": documents.read_json(text, longest=streams.LONGEST)}
        for each in cluster.parts(cluster.at(answer, "answer"), "listener_statuses"):
            address = cluster.at(each, "local_address", "socket_address")
            found.add(int(address.get("port_value", 0)))
    return found


def judge_address(service: cluster.Object | None, target: places.Target) -> Iterable[Finding]:
    """Judge whether the gateway runs and can be reached from outside.

    Args:
        service: The gateway's, None where it has gone.
        target: The gateway workload.
    """
    show = f"kubectl -n {target.namespace} describe service {target.service}"
    if not target.ready:
        pods = ",".join(f"{key}={value}" for key, value in sorted(target.selector.items()))
        yield findings.broken(
            f"gateway {target.reference} has no ready pod",
            f"kubectl -n {target.namespace} get pods -l {pods}",
        )
    if service is None:
        yield findings.broken(
            f"Service {target.namespace}/{target.service} does not exist any more", show
        )
        return
    spec = cluster.at(service, "spec")
    kind = spec.get("type", "ClusterIP")
    given = [
        str(each.get("ip") or each.get("hostname"))
        for each in cluster.parts(cluster.at(service, "status", "loadBalancer"), "ingress")
    ]
    outside = given or [str(each) for each in cluster.items(spec, "externalIPs")]
    if kind == "LoadBalancer" and not outside:
        yield findings.doubtful(
            f"Service {target.namespace}/{target.service} is a LoadBalancer and nobody gave it an "
            "address",
            show,
        )
    elif target.ready:
        shown = ", ".join(outside) or f"{spec.get('clusterIP')} ({kind})"
        yield findings.fine(f"{target.reference} is reached at {shown}")


def judge_listeners(
    opened: cluster.Object,
    service: cluster.Object,
    pod: cluster.Object,
    listening: Collection[int],
    *,
    log: str,
) -> Iterable[Finding]:
    """Judge whether the gateway listens where our Gateway says.

    Args:
        opened: Our Gateway.
        service: The gateway's.
        pod: One of the gateway's.
        listening: Ports at which its Envoy has listeners.
        log: Of istiod, `-n NAMESPACE deploy/NAME`, or of the pod where istiod is elsewhere.
    """
    ports = [
        int(server["port"]["number"])
        for server in cluster.parts(cluster.at(opened, "spec"), "servers")
    ]
    deaf = [port for port in ports if target_port(service, pod, port) not in listening]
    name = opened["metadata"]["name"]
    for port in deaf:
        yield findings.broken(
            f"Gateway {name} has port {port}, and {cluster.reference(pod)} does not listen there",
            f"kubectl logs {log} | grep {name}",
        )
    if not deaf:
        yield findings.fine(f"the gateway listens at {', '.join(map(str, ports))}")
