"""Which calls out of the model would a proxy break?"""

from __future__ import annotations

from collections.abc import Iterable

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.istio import proxies
from istio_integrator.kube import cluster, fences


@registry.check("egress", place=190, symptoms=("connection-reset-by-peer",))
def egress(facts: Facts) -> Iterable[Finding]:
    """Name the calls out of the model that a proxy would break."""
    istio = facts.mesh
    if istio is None:
        return
    if istio.cuts_off_controller:
        yield from judge_controller(facts.pods, facts.controller.ports)
    if istio.registry_only:
        text = "proxies are REGISTRY_ONLY: pods reach only hosts of Services and ServiceEntries"
        yield findings.doubtful(text, "kubectl get serviceentries -A")
    else:
        yield findings.fine("proxies let calls out of the cluster")


def judge_controller(pods: Iterable[cluster.Object], ports: Iterable[int]) -> Iterable[Finding]:
    """Name charms that cannot reach Juju's controller, since their proxy lets no such call out."""
    wanted = set(map(str, ports))
    cut: list[cluster.Object] = []
    for pod in pods:
        with fences.around(cluster.reference(pod)):
            notes = cluster.at(pod, "metadata", "annotations")
            listed = notes.get(names.EXCLUDED_OUTBOUND_PORTS, "").split(",")
            passes = wanted <= {each.strip() for each in listed}
            passes |= "0.0.0.0/0" in notes.get(names.EXCLUDED_OUTBOUND_RANGES, "")
            is_charm = names.NAME in cluster.at(pod, "metadata", "labels")
            if is_charm and proxies.is_in_mesh(pod) and not passes:
                cut.append(pod)
    if cut:
        first = cut[0]["metadata"]
        pods_cut = report.listed(map(cluster.reference, cut))
        yield findings.broken(
            f"the proxies of {pods_cut} keep their charms from Juju's controller",
            f"kubectl -n {first['namespace']} delete pod {first['name']}",
        )
