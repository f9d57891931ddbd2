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


@registry.check(
    "egress",
    place=190,
    question="which calls out would a proxy break",
    reads="mesh settings, Sidecars, pods",
    symptoms=("connection-reset-by-peer",),
)
def egress(facts: Facts) -> Iterable[Finding]:
    """Look at the way to Juju's controller, and at what the mesh lets out."""
    istio = facts.mesh
    if istio is None:
        return
    if istio.cuts_off_controller:
        yield from judge_controller(facts.pods, facts.controller.ports)
    yield from judge_registry(
        facts.objects(cluster.SIDECAR),
        registry_only=istio.registry_only,
        namespaces=(facts.model, istio.root_namespace),
    )


def judge_controller(pods: Iterable[cluster.Object], ports: Iterable[int]) -> Iterable[Finding]:
    """Name charms that cannot reach Juju's controller, since their proxy lets no such call out.

    Args:
        pods: The model's.
        ports: The controller's.
    """
    wanted = {str(port) for port in ports}
    cut: list[cluster.Object] = []
    for pod in pods:
        with fences.around(cluster.reference(pod)):
            is_charm = names.NAME in cluster.at(pod, "metadata", "labels")
            passes = _passes(cluster.at(pod, "metadata", "annotations"), wanted)
            if is_charm and plaintext.is_in_mesh(pod) and not passes:
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


def judge_registry(
    sidecars: Iterable[cluster.Object], *, registry_only: bool, namespaces: Iterable[str]
) -> Iterable[Finding]:
    """Judge whether proxies let out calls to hosts that Istio does not know.

    Args:
        sidecars: Istio's objects of that name.
        registry_only: What the mesh and its Sidecars come to.
        namespaces: The model's and the mesh's own, whose Sidecars count.
    """
    doubts: list[Finding] = []
    if registry_only:
        text = "proxies are REGISTRY_ONLY: pods reach only hosts of Services and ServiceEntries"
        doubts.append(findings.doubtful(text, "kubectl get serviceentries -A"))
    for each in sidecars:
        with fences.around(cluster.reference(each)):
            metadata = each["metadata"]
            if metadata["namespace"] in namespaces and _is_narrow(cluster.at(each, "spec")):
                show = f"kubectl -n {metadata['namespace']} get sidecar {metadata['name']} -o yaml"
                text = f"{cluster.reference(each)} limits the hosts that pods reach"
                doubts.append(findings.doubtful(text, show))
    yield from doubts or [findings.fine("proxies let calls out of the cluster")]


def _is_narrow(spec: cluster.Object) -> bool:
    only = cluster.at(spec, "outboundTrafficPolicy").get("mode") == "REGISTRY_ONLY"
    rules = cluster.parts(spec, "egress")
    hosts = [str(host) for rule in rules for host in cluster.items(rule, "hosts")]
    return only or bool(hosts and "*/*" not in hosts)
