"""Which EnvoyFilters and policies of others hit the model?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.ingress import gateway
from istio_integrator.kube import cluster, fences
from istio_integrator.mesh import plaintext

_ISTIOS_OWN = re.compile(r"(tcp-)?stats-filter-|stackdriver-filter-|metadata-exchange-")
"""EnvoyFilters that Istio's own charts made up to 1.20."""


@registry.check(
    "others",
    place=160,
    question="which EnvoyFilters and policies of others hit the model",
    reads="EnvoyFilters, AuthorizationPolicies",
    symptoms=("rbac-access-denied",),
)
def others(facts: Facts) -> Iterable[Finding]:
    """Look at what others wrote in the model, at the gateway and for the whole mesh."""
    if facts.mesh is None:
        return ()
    root, target = facts.mesh.root_namespace, facts.gateway
    places = {facts.model, root, *([target.namespace] if target else [])}
    filters, policies = (
        [each for each in found if each["metadata"]["namespace"] in places]
        for found in (
            facts.objects(cluster.ENVOY_FILTER),
            facts.objects(cluster.AUTHORIZATION_POLICY),
        )
    )
    return judge(filters, policies, facts.pods, target, root=root)


def judge(
    filters: Iterable[cluster.Object],
    policies: Iterable[cluster.Object],
    pods: Sequence[cluster.Object],
    target: gateway.Target | None,
    *,
    root: str,
) -> Iterable[Finding]:
    """Judge the EnvoyFilters and AuthorizationPolicies that are not ours and hit the model.

    Args:
        filters: EnvoyFilters of the model, the gateway and the mesh.
        policies: AuthorizationPolicies of the same.
        pods: The model's.
        target: The gateway workload, where there is one.
        root: The mesh's own namespace, whose objects apply everywhere.
    """
    doubts: list[Finding] = []
    for each in filters:
        with fences.around(cluster.reference(each)):
            metadata = each["metadata"]
            if _is_ours(each) or _ISTIOS_OWN.match(metadata["name"]):
                continue
            selector = cluster.at(each, "spec", "workloadSelector", "labels")
            if hit := _hit(each, selector, pods, target, root):
                doubts.append(
                    findings.doubtful(
                        f"{cluster.reference(each)}, which this charm did not make, changes {hit}",
                        f"kubectl -n {metadata['namespace']} get envoyfilter {metadata['name']}",
                    )
                )
    count = 0
    for each in policies:
        with fences.around(cluster.reference(each)):
            spec = cluster.at(each, "spec")
            hit = _hit(each, cluster.at(spec, "selector", "matchLabels"), pods, target, root)
            if _is_ours(each) or plaintext.is_only_tried(each) or not hit:
                continue
            count += 1
            metadata = each["metadata"]
            show = f"kubectl -n {metadata['namespace']} get authorizationpolicy {metadata['name']}"
            if what := _severe(spec):
                name = cluster.reference(each)
                doubts.append(findings.doubtful(f"{name} {what} of {hit}", f"{show} -o yaml"))
    yield from doubts
    if not doubts:
        also = f"; {count} policies allow or deny some calls" if count else ""
        yield findings.fine(f"no EnvoyFilter or policy of others stands in the way{also}")


def _is_ours(obj: cluster.Object) -> bool:
    return names.OWNER in cluster.at(obj, "metadata", "labels")


def _severe(spec: cluster.Object) -> str:
    action, rules = spec.get("action", "ALLOW"), cluster.items(spec, "rules")
    if action == "CUSTOM":
        return "has another service decide about callers"
    if action == "ALLOW" and not rules:
        return "lets nobody be a caller"
    if action == "DENY" and any(not rule for rule in rules):
        return "denies every caller"
    return ""


def _hit(
    obj: cluster.Object,
    selector: Mapping[str, Any],
    pods: Sequence[cluster.Object],
    target: gateway.Target | None,
    root: str,
) -> str:
    """Name whom of ours an object is about; empty: nobody."""
    namespace = obj["metadata"]["namespace"]
    about = [
        pod
        for pod in pods
        if namespace in (root, pod["metadata"]["namespace"])
        and selector.items() <= cluster.at(pod, "metadata", "labels").items()
        and plaintext.is_in_mesh(pod)
    ]
    if about:
        return f"{len(about)} pods of the model"
    if target and namespace in (root, target.namespace) and _is_about(selector, target):
        return f"gateway {target.reference}"
    return ""


def _is_about(selector: Mapping[str, Any], target: gateway.Target) -> bool:
    # Of the gateway's pods only the labels are known by which our Gateway selects them.
    return all(target.selector.get(key, value) == value for key, value in selector.items())
