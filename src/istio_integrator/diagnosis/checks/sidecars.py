"""Which of the model's pods are not in the mesh, or lose calls there, and why?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from integrator_contract import names
from integrator_contract.answers import Listing, PodAnswer
from integrator_contract.reasons import Reason
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.istio import proxies
from istio_integrator.kube import cluster, fences
from istio_integrator.lifecycle import answers
from istio_integrator.messages import Message, Said, Severity
from istio_integrator.policies import decide, policies
from istio_integrator.situation import model as typed

_NODE_LABELS = {"k8s-app": "istio-cni-node"}
"""The labels of the plugin's DaemonSet and pods, as Istio's charts write them."""
_EXCLUSIONS = (
    names.EXCLUDED_OUTBOUND_PORTS,
    names.EXCLUDED_OUTBOUND_RANGES,
    names.INCLUDED_OUTBOUND_RANGES,
)
_WITH_SIDECAR = (Reason.SIDECAR_UNWANTED, Reason.EXCLUDED, Reason.WRONG_ORDER)
"""Why a pod is to be replaced though it has a sidecar."""


@registry.check("cni", place=40, symptoms=("an-init-container-without-network",))
def cni(facts: Facts) -> Iterable[Message]:
    """Check whether Istio's plugin is ready, and which init containers have no network."""
    if facts.mesh is None or not facts.mesh.cni:
        return ()
    daemon_sets = facts.cluster.list(cluster.DAEMON_SET, labels=_NODE_LABELS)
    return judge_cni(facts.pods, daemon_sets, application=facts.application)


def judge_cni(
    pods: Iterable[cluster.Object], daemon_sets: Iterable[cluster.Object], *, application: str
) -> Iterable[Message]:
    """Judge Istio's CNI plugin, and init containers that run before a classic proxy."""
    wrong: list[Message] = []
    for each in daemon_sets:
        reference = cluster.reference(each)
        with fences.around(reference):
            status, namespace = cluster.at(each, "status"), each["metadata"]["namespace"]
            count = status.get("desiredNumberScheduled", 0) - status.get("numberReady", 0)
            if count:
                told = {"reference": reference, "namespace": namespace, "count": count}
                wrong.append(Said.CNI_NOT_READY(**told))
    if cut := typed.read_each(pods, _cut_off):
        pods_cut = report.listed(cut)
        wrong.append(Said.INIT_WITHOUT_NETWORK(pods=pods_cut, application=application))
    yield from wrong or [Said.CNI_READY()]


def _cut_off(pod: cluster.Object) -> list[str]:
    """Name a pod with an init container of its own that has no network."""
    spec, annotations = cluster.at(pod, "spec"), cluster.at(pod, "metadata", "annotations")
    classic = any(each.get("name") == names.PROXY for each in cluster.parts(spec, "containers"))
    inits = cluster.parts(spec, "initContainers")
    own = any(not str(each["name"]).startswith("istio-") for each in inits)
    # istiod notes "*" and "" in each pod where the plugin redirects, unless told otherwise.
    is_led = {annotations.get(key) for key in _EXCLUSIONS} <= {None, "", "*"}
    return [cluster.reference(pod)] if classic and own and is_led else []


@registry.check(
    "sidecars",
    place=50,
    symptoms=("a-pod-without-istio-proxy", "stuck-in-terminating"),
    look="juju run {application}/leader list-uninjected",
)
def sidecars(facts: Facts) -> Iterable[Message]:
    """Name the pods without a sidecar or with one of an old revision or version, and why."""
    if facts.mesh is None:
        return ()
    answer = facts.workload.uninjected()
    old = facts.workload.stale() if answer.summary.stale else ()
    return judge(answer, old, application=facts.application, model=facts.model)


def judge(
    answer: Listing, old: Iterable[PodAnswer], *, application: str, model: str
) -> Iterable[Message]:
    """Judge the pods that are not in the mesh as they should be, by the reason."""
    progress = list(
        answers.progress(answer.summary, application=application, model=model, is_automatic=False)
    )
    rows: dict[tuple[Said, str], list[str]] = {}
    for row in answer.pods:
        said = Said.WRONG_POD if row.reason in _WITH_SIDECAR else Said.NO_SIDECAR
        rows.setdefault((said, row.message), []).append(f"{row.namespace}/{row.name}")
    for row in old:
        rows.setdefault((Said.OLD_PROXY, row.message), []).append(f"{row.namespace}/{row.name}")
    unmet = [each for each in progress if each.severity is not Severity.NOTE]
    yield from unmet
    for (said, reason), pods in rows.items():
        yield said(pods=report.listed(pods), reason=reason, application=application)
    if not unmet and not rows:
        yield from progress


@registry.check(
    "ambient", place=65, unfelt="pods that no ztunnel took in answer as if there were no mesh"
)
def ambient(facts: Facts) -> Iterable[Message]:
    """In ambient mode, name the pods that no ztunnel has, and what needs a waypoint."""
    context = facts.context
    if context.data_plane != "ambient":
        return ()
    beyond: Sequence[str] = ()
    if facts.config.authorization != "off":
        authorization = policies.Authorization(
            context, facts.related, lambda: facts.ingress.exposure
        )
        beyond = decide.decide(authorization.asked(facts.config)).beyond
    return judge_ambient(facts.pods, beyond, application=facts.application)


def judge_ambient(
    pods: Iterable[cluster.Object], beyond: Sequence[str], *, application: str
) -> Iterable[Message]:
    """Judge the pods, and the workloads whose relations say more than layer 4 holds."""
    if waiting := typed.read_each(pods, _not_taken):
        yield Said.PODS_NOT_IN_ZTUNNEL(pods=report.listed(sorted(waiting)))
    else:
        yield Said.PODS_IN_ZTUNNEL()
    if beyond:
        workloads = report.listed(sorted(beyond))
        yield Said.HTTP_RULES_NEED_WAYPOINT(workloads=workloads, application=application)


def _not_taken(pod: cluster.Object) -> list[str]:
    notes = cluster.at(pod, "metadata", "annotations")
    is_outside = (
        cluster.at(pod, "metadata", "labels").get(names.DATAPLANE_MODE) == "none"
        or names.SIDECAR_STATUS in notes
        or cluster.at(pod, "spec").get("hostNetwork")
    )
    is_taken = notes.get(names.AMBIENT_REDIRECTION) == "enabled"
    is_waiting = cluster.is_ready(pod) and not is_taken and not is_outside
    return [str(pod["metadata"]["name"])] if is_waiting else []


@registry.check("egress", place=190, symptoms=("connection-reset-by-peer",))
def egress(facts: Facts) -> Iterable[Message]:
    """Name the calls out of the model that a proxy would break."""
    istio = facts.mesh
    if istio is None:
        return
    if istio.cuts_off_controller:
        yield from judge_controller(facts.pods, facts.controller.ports)
    yield Said.EGRESS_REGISTRY_ONLY() if istio.registry_only else Said.EGRESS_OPEN()


def judge_controller(pods: Iterable[cluster.Object], ports: Iterable[int]) -> Iterable[Message]:
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
        yield Said.CONTROLLER_NOT_REACHED(
            pods=report.listed(map(cluster.reference, cut)),
            namespace=first["namespace"],
            name=first["name"],
        )
