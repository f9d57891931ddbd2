"""Checks of what others wrote that decides about the model's traffic."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import cluster
import gateway
import modeloperator

from . import finding

_ISTIOS_OWN = re.compile(r"(tcp-)?stats-filter-|stackdriver-filter-|metadata-exchange-")
"""EnvoyFilters that Istio's own charts made up to 1.20."""
_OWNER = "istio-integrator.charmhub.io/owner"
_USER_HEADER = "request.headers["
_PRINCIPAL = re.compile(r"(?:.*/)?ns/([^/]+)/sa/([^/]+)")


def others(
    filters: Iterable[cluster.Object],
    policies: Iterable[cluster.Object],
    pods: Sequence[cluster.Object],
    target: gateway.Target | None,
    *,
    root: str,
) -> Iterable[finding.Finding]:
    """Judge the EnvoyFilters and AuthorizationPolicies that are not ours and hit the model.

    Args:
        filters: EnvoyFilters of the model, the gateway and the mesh.
        policies: AuthorizationPolicies of the same.
        pods: The model's.
        target: The gateway workload, where there is one.
        root: The mesh's own namespace, whose objects apply everywhere.
    """
    doubts: list[finding.Finding] = []
    for each in filters:
        metadata = each["metadata"]
        if _is_ours(each) or _ISTIOS_OWN.match(metadata["name"]):
            continue
        if hit := _hit(
            each, cluster.at(each, "spec", "workloadSelector", "labels"), pods, target, root
        ):
            doubts.append(
                finding.doubtful(
                    f"{cluster.reference(each)}, which is not ours, changes {hit}",
                    f"kubectl -n {metadata['namespace']} get envoyfilter {metadata['name']}",
                )
            )
    count = 0
    for each in policies:
        spec = cluster.at(each, "spec")
        hit = _hit(each, cluster.at(spec, "selector", "matchLabels"), pods, target, root)
        if _is_ours(each) or _is_only_tried(each) or not hit:
            continue
        count += 1
        metadata = each["metadata"]
        look = f"kubectl -n {metadata['namespace']} get authorizationpolicy {metadata['name']} "
        if what := _severe(spec):
            name = cluster.reference(each)
            doubts.append(finding.doubtful(f"{name} {what} of {hit}", f"{look}-o yaml"))
    yield from doubts
    if not doubts:
        also = f"; {count} policies allow or deny some calls" if count else ""
        yield finding.fine(f"no EnvoyFilter or policy of others stands in the way{also}")


def _is_ours(obj: cluster.Object) -> bool:
    return _OWNER in cluster.at(obj, "metadata", "labels")


def _is_only_tried(obj: cluster.Object) -> bool:
    return cluster.at(obj, "metadata", "annotations").get("istio.io/dry-run") == "true"


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
        and modeloperator.is_in_mesh(pod)
    ]
    if about:
        return f"{len(about)} pods of the model"
    if target and namespace in (root, target.namespace) and _is_about(selector, target):
        return f"gateway {target.reference}"
    return ""


def _is_about(selector: Mapping[str, Any], target: gateway.Target) -> bool:
    # Of the gateway's pods only the labels are known by which our Gateway selects them.
    return all(target.selector.get(key, value) == value for key, value in selector.items())


@dataclasses.dataclass(frozen=True)
class Backend:
    """A pod that API servers call."""

    webhook: str
    """The configuration that names it."""
    pod: cluster.Object
    port: int
    """Of the pod."""


def cut_off(
    backends: Iterable[Backend],
    policies: Collection[cluster.Object],
    *,
    root: str,
    application: str,
) -> Iterable[finding.Finding]:
    """Judge whether API servers, which are not in the mesh, reach the model's webhooks."""
    count = 0
    for each in backends:
        count += 1
        if not modeloperator.is_in_mesh(each.pod):
            continue
        found = modeloperator.obstacle(each.pod, policies, root_namespace=root, port=each.port)
        if found:
            yield finding.broken(
                f"{cluster.reference(each.pod)} is in the mesh and {found}, so webhook "
                f"{each.webhook} can't be called",
                _way_out(each.pod, application),
            )
            count -= 1
    if count:
        yield finding.fine(f"API servers can call {count} webhooks in the model")


def _way_out(pod: cluster.Object, application: str) -> str:
    metadata = pod["metadata"]
    again = f"kubectl -n {metadata['namespace']} delete pod {metadata['name']}"
    if modeloperator.SELECTOR.items() <= cluster.at(metadata, "labels").items():
        return again
    for key in ("app.kubernetes.io/name", "app"):
        if value := cluster.at(metadata, "labels").get(key):
            return f"juju config {application} excluded-pods={key}={value} && {again}"
    return again


def profiles(
    policies: Iterable[cluster.Object], *, namespace: str, account: str
) -> Iterable[finding.Finding]:
    """Judge whether the policies of profile namespaces let the real gateway in.

    kubeflow-profiles names the gateway's ServiceAccount in the rules that are about the header
    with the user's name; with another one every page there answers 403 (kubeflow issue 7374).

    Args:
        policies: AuthorizationPolicies of profile namespaces.
        namespace: Of the gateway workload.
        account: Its ServiceAccount.
    """
    wrong: dict[str, list[str]] = {}
    count = 0
    for policy in policies:
        spec = cluster.at(policy, "spec")
        for rule in cluster.items(spec, "rules"):
            named = principals(rule)
            if spec.get("action", "ALLOW") != "ALLOW" or not named or not _is_about_users(rule):
                continue
            count += 1
            if not any(_admits(each, namespace, account) for each in named):
                place = policy["metadata"]["namespace"]
                wrong.setdefault(", ".join(named), []).append(place)
    for named, places in wrong.items():
        yield finding.broken(
            f"the policies of {finding.listed(places)} let {named} in, and the gateway is "
            f"{namespace}/{account}: every page there answers 403",
            f"juju config kubeflow-profiles istio-gateway-namespace={namespace} "
            f"istio-gateway-service-account={account}",
        )
    if not wrong:
        yield finding.fine(
            f"{count} rules of profile namespaces let the gateway in"
            if count
            else "no profile namespace names the gateway in a policy"
        )


def principals(rule: cluster.Object) -> list[str]:
    """List whom a rule is about."""
    return [
        str(principal)
        for entry in cluster.items(rule, "from")
        for principal in cluster.items(cluster.at(entry, "source"), "principals")
    ]


def _is_about_users(rule: cluster.Object) -> bool:
    return any(
        str(condition.get("key", "")).startswith(_USER_HEADER)
        for condition in cluster.items(rule, "when")
    )


def _admits(principal: str, namespace: str, account: str) -> bool:
    """Match as istiod does: exact, `*` at one end, or alone for everybody with an identity."""
    real = f"ns/{namespace}/sa/{account}"
    if principal == "*":
        return True
    if principal.startswith("*"):
        return f"cluster.local/{real}".endswith(principal[1:])
    if principal.endswith("*"):
        # The trust domain before it may be any.
        _, _, rest = principal[:-1].partition("/")
        return real.startswith(rest)
    match = _PRINCIPAL.fullmatch(principal)
    return bool(match) and match.groups() == (namespace, account)
