"""Is Istio's CNI plugin ready, and which init containers does it leave without a network?"""

from __future__ import annotations

from collections.abc import Iterable

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, fences
from istio_integrator.situation import model

_NODE_LABELS = {"k8s-app": "istio-cni-node"}
"""The labels of the plugin's DaemonSet and pods, as Istio's charts write them."""
_EXCLUSIONS = (
    names.EXCLUDED_OUTBOUND_PORTS,
    names.EXCLUDED_OUTBOUND_RANGES,
    names.INCLUDED_OUTBOUND_RANGES,
)


@registry.check("cni", place=40, symptoms=("an-init-container-without-network",))
def cni(facts: Facts) -> Iterable[Finding]:
    """Check whether Istio's plugin is ready, and which init containers have no network."""
    if facts.mesh is None or not facts.mesh.cni:
        return ()
    daemon_sets = facts.cluster.list(cluster.DAEMON_SET, labels=_NODE_LABELS)
    return judge(facts.pods, daemon_sets, application=facts.application)


def judge(
    pods: Iterable[cluster.Object], daemon_sets: Iterable[cluster.Object], *, application: str
) -> Iterable[Finding]:
    """Judge Istio's CNI plugin, and init containers that run before a classic proxy."""
    wrong: list[Finding] = []
    for each in daemon_sets:
        with fences.around(cluster.reference(each)):
            status = cluster.at(each, "status")
            missing = status.get("desiredNumberScheduled", 0) - status.get("numberReady", 0)
            if missing:
                text = f"is not ready on {missing} nodes: pods there don't start"
                show = f"kubectl -n {each['metadata']['namespace']} get pods -o wide"
                wrong.append(findings.broken(f"{cluster.reference(each)} {text}", show))
    if cut := model.read_each(pods, _cut_off):
        text = "init containers have no network before their classic proxy runs: "
        options = "excluded-outbound-ports=PORT, or job-sidecars=auto with kubelets from 1.33"
        wrong.append(
            findings.doubtful(
                f"{text}{report.listed(cut)}", f"juju config {application} {options}"
            )
        )
    yield from wrong or [findings.fine("Istio's CNI plugin is ready")]


def _cut_off(pod: cluster.Object) -> list[str]:
    """Name a pod with an init container of its own that has no network."""
    spec, annotations = cluster.at(pod, "spec"), cluster.at(pod, "metadata", "annotations")
    classic = any(each.get("name") == names.PROXY for each in cluster.parts(spec, "containers"))
    inits = cluster.parts(spec, "initContainers")
    own = any(not str(each["name"]).startswith("istio-") for each in inits)
    # istiod notes "*" and "" in each pod where the plugin redirects, unless told otherwise.
    is_led = {annotations.get(key) for key in _EXCLUSIONS} <= {None, "", "*"}
    return [cluster.reference(pod)] if classic and own and is_led else []
