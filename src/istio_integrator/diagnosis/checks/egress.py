"""Which calls out of the model would a proxy break?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, fences
from istio_integrator.mesh import plaintext

SERVER_FIRST = {25: "SMTP", 3306: "MySQL", 5432: "PostgreSQL", 27017: "MongoDB"}
"""Where the server, or a handshake that is not HTTP, speaks first (istio.io, "Protocol Selection",
Server First Protocols)."""
_HTTP = ("http", "http2", "grpc", "grpc-web")


@registry.check(
    "egress",
    place=190,
    question="which calls out would a proxy break",
    reads="mesh settings, Sidecars, ServiceEntries, Services, pods",
    symptoms=("connection-reset-by-peer",),
)
def egress(facts: Facts) -> Iterable[Finding]:
    """Look at the way to Juju's controller, at Services and at what the mesh lets out."""
    istio = facts.mesh
    if istio is None:
        return
    ports = facts.controller.ports
    yield from judge_controller(facts.pods, ports, needed=istio.cuts_off_controller)
    yield from judge_protocols(facts.objects(cluster.SERVICE, facts.model))
    yield from judge_registry(
        facts.objects(cluster.SIDECAR),
        facts.objects(cluster.SERVICE_ENTRY),
        registry_only=istio.registry_only,
        namespaces=(facts.model, istio.root_namespace),
    )


def judge_controller(
    pods: Iterable[cluster.Object], ports: Iterable[int], *, needed: bool
) -> Iterable[Finding]:
    """Judge whether charms reach Juju's controller past their proxy, where they have to.

    Args:
        pods: The model's.
        ports: The controller's.
        needed: Whether a proxy would keep them from it.
    """
    wanted = {str(port) for port in ports}
    cut: list[cluster.Object] = []
    for pod in pods if needed else ():
        with fences.around(cluster.reference(pod)):
            is_cut = (
                names.NAME in cluster.at(pod, "metadata", "labels")
                and plaintext.is_in_mesh(pod)
                and not _passes(cluster.at(pod, "metadata", "annotations"), wanted)
            )
            if is_cut:
                cut.append(pod)
    if cut:
        first = cut[0]["metadata"]
        pods_cut = report.listed(map(cluster.reference, cut))
        yield findings.broken(
            f"the proxies of {pods_cut} keep their charms from Juju's controller",
            f"kubectl -n {first['namespace']} delete pod {first['name']}",
        )


def _passes(annotations: Mapping[str, str], ports: set[str]) -> bool:
    excluded = {
        part.strip() for part in annotations.get(names.EXCLUDED_OUTBOUND_PORTS, "").split(",")
    }
    return ports <= excluded or "0.0.0.0/0" in annotations.get(names.EXCLUDED_OUTBOUND_RANGES, "")


def judge_protocols(services: Iterable[cluster.Object]) -> Iterable[Finding]:
    """Judge Services whose protocol is said to be HTTP where the server speaks first."""
    for service in services:
        with fences.around(cluster.reference(service)):
            for port in cluster.parts(cluster.at(service, "spec"), "ports"):
                number = port.get("port")
                name = str(port.get("name") or "").partition("-")[0]
                said = str(port.get("appProtocol") or name)
                if number in SERVER_FIRST and said.lower() in _HTTP:
                    metadata = service["metadata"]
                    yield findings.doubtful(
                        f"{cluster.reference(service)} calls port {number} {said}, and a proxy "
                        f"would wait for a request: it is {SERVER_FIRST[number]}'s",
                        f"kubectl -n {metadata['namespace']} edit service {metadata['name']}",
                    )


def judge_registry(
    sidecars: Iterable[cluster.Object],
    entries: Iterable[cluster.Object],
    *,
    registry_only: bool,
    namespaces: Iterable[str],
) -> Iterable[Finding]:
    """Judge whether proxies let out what Istio does not know.

    Args:
        sidecars: Istio's objects of that name.
        entries: ServiceEntries.
        registry_only: What the mesh and its Sidecars come to.
        namespaces: The model's and the mesh's own, whose Sidecars count.
    """
    doubts: list[Finding] = []
    if registry_only:
        hosts: list[str] = []
        for each in entries:
            with fences.around(cluster.reference(each)):
                hosts += map(str, cluster.items(cluster.at(each, "spec"), "hosts"))
        known = report.listed(hosts) or "nothing"
        doubts.append(
            findings.doubtful(
                f"proxies are REGISTRY_ONLY: outside of the cluster, pods reach {known}",
                "kubectl get serviceentries -A",
            )
        )
    for each in sidecars:
        with fences.around(cluster.reference(each)):
            metadata = each["metadata"]
            spec = cluster.at(each, "spec")
            if metadata["namespace"] in namespaces and (reached := _only(spec)):
                show = f"kubectl -n {metadata['namespace']} get sidecar {metadata['name']} -o yaml"
                doubts.append(
                    findings.doubtful(
                        f"{cluster.reference(each)} lets pods reach only {reached}", show
                    )
                )
    yield from doubts
    if not doubts:
        yield findings.fine("proxies let calls out of the cluster")


def _only(spec: cluster.Object) -> str:
    """Name what a Sidecar lets pods reach; empty: everything."""
    only = cluster.at(spec, "outboundTrafficPolicy").get("mode") == "REGISTRY_ONLY"
    rules = cluster.parts(spec, "egress")
    hosts = [str(host) for rule in rules for host in cluster.items(rule, "hosts")]
    if only or (hosts and "*/*" not in hosts):
        return report.listed(hosts) or "what Istio knows"
    return ""
