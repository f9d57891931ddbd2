"""Who is refused or let in otherwise than relations say, by policies as they would be or are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.findings import Finding
from istio_integrator.ingress import observed
from istio_integrator.istio import plaintext
from istio_integrator.kube import cluster, fences

OPTION = "authorization"
FOLDER = "authorization"
"""The component of policies that name callers."""
CLOSED = "authorization-closed"
"""The component of the one that closes the rest."""
_PRINCIPAL = re.compile(r"cluster\.local/ns/([^/]+)/sa/([^/]+)")
_WHAT = {
    "ALLOW": "lets callers in beside them",
    "DENY": "denies some of their callers",
    "CUSTOM": "has another service decide about them",
}


def judge(
    policies: Iterable[cluster.Object],
    pods: Sequence[cluster.Object],
    *,
    owner: str,
    model: str,
    application: str,
) -> Iterable[Finding]:
    """Judge whether callers are held to what relations say."""
    ours: list[cluster.Object] = []
    others: list[cluster.Object] = []
    for each in policies:
        labels = cluster.at(each, "metadata", "labels")
        if labels.get(names.OWNER) != owner:
            others.append(each)
        elif labels.get(names.COMPONENT) in (FOLDER, CLOSED):
            ours.append(each)
    shut = [pod for pod in pods if any(selects(each, pod) for each in ours)]
    doubts = [
        *_unknown_callers(ours, pods, model=model, application=application),
        *_unheld(shut, application=application),
        *_contradictions(others, shut),
        *_called_by_nobody(ours, shut),
    ]
    yield from doubts
    if not doubts:
        seen = f"{len(ours)} policies hold the callers of {len(shut)} pods"
        yield findings.fine(seen)


def _unknown_callers(
    ours: Sequence[cluster.Object],
    pods: Iterable[cluster.Object],
    *,
    model: str,
    application: str,
) -> Iterable[Finding]:
    """Find callers that are named and have no certificate to show, since they have no proxy."""
    named = {match.groups() for each in ours for match in _principals(each)}
    running: dict[str, list[cluster.Object]] = {}
    for pod in pods:
        account = str(cluster.at(pod, "spec").get("serviceAccountName"))
        if (model, account) in named and cluster.at(pod, "status").get("phase") != "Succeeded":
            running.setdefault(account, []).append(pod)
    lost = [
        account for account, found in running.items() if not any(map(plaintext.is_in_mesh, found))
    ]
    if lost:
        yield findings.broken(
            f"{observed.listed(sorted(lost))} may call by a relation and can't, having no sidecar",
            f"juju run {application}/leader list-uninjected",
        )


def _principals(policy: cluster.Object) -> Iterable[re.Match[str]]:
    for rule in cluster.parts(cluster.at(policy, "spec"), "rules"):
        for entry in cluster.parts(rule, "from"):
            for name in cluster.items(cluster.at(entry, "source"), "principals"):
                if match := _PRINCIPAL.fullmatch(str(name)):
                    yield match


def _unheld(shut: Iterable[cluster.Object], *, application: str) -> Iterable[Finding]:
    bare = [
        pod["metadata"]["name"]
        for pod in shut
        if not plaintext.is_in_mesh(pod) and _is_for(pod, names.NAME)
    ]
    outside = [name for name in bare if not name.startswith((application, names.MODELOPERATOR))]
    if outside:
        yield findings.doubtful(
            f"nothing holds the callers of {observed.listed(outside)}: no sidecar",
            f"juju run {application}/leader list-uninjected",
        )


def _contradictions(
    others: Iterable[cluster.Object], shut: Sequence[cluster.Object]
) -> Iterable[Finding]:
    for each in others:
        with fences.around(cluster.reference(each)):
            metadata, spec = each["metadata"], cluster.at(each, "spec")
            what = _WHAT.get(str(spec.get("action", "ALLOW")))
            hit = [
                pod["metadata"]["name"]
                for pod in shut
                if plaintext.is_in_mesh(pod) and selects(each, pod)
            ]
            is_empty = spec.get("action", "ALLOW") == "ALLOW" and not cluster.items(spec, "rules")
            if hit and what and not is_empty:
                yield findings.doubtful(
                    f"{cluster.reference(each)} is about {observed.listed(hit)}, too, and {what}",
                    f"kubectl -n {metadata['namespace']} get authorizationpolicy "
                    f"{metadata['name']} -o yaml",
                )


def _called_by_nobody(
    ours: Sequence[cluster.Object], shut: Iterable[cluster.Object]
) -> Iterable[Finding]:
    letting = [each for each in ours if cluster.items(cluster.at(each, "spec"), "rules")]
    lonely = [
        pod["metadata"]["name"]
        for pod in shut
        if plaintext.is_in_mesh(pod) and not any(selects(each, pod) for each in letting)
    ]
    if lonely:
        yield findings.doubtful(
            f"this charm's policies let nobody call {observed.listed(lonely)}",
            "if one is to be called: write an AuthorizationPolicy that names its callers",
        )


def selects(policy: cluster.Object, pod: cluster.Object) -> bool:
    """Tell whether a policy of the pod's namespace, or of the mesh, is about its sidecar."""
    return plaintext.selects(policy, cluster.at(pod, "metadata", "labels"))


def _is_for(pod: cluster.Object, key: str) -> bool:
    return key in cluster.at(pod, "metadata", "labels")
