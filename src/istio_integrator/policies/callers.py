"""Who is refused or let in otherwise than relations say, by policies as they would be or are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from integrator_contract import names
from istio_integrator import findings, texts
from istio_integrator.findings import Finding
from istio_integrator.istio import installation
from istio_integrator.istio.authorization_policy import AuthorizationPolicy, principal
from istio_integrator.situation.model import Pod

FOLDER = "authorization"
"""The component of policies that name callers."""
CLOSED = "authorization-closed"
"""The component of the one that closes the rest."""
_WHAT = {
    "ALLOW": "lets callers in beside them",
    "DENY": "denies some of their callers",
    "CUSTOM": "has another service decide about them",
}


def judge(
    policies: Iterable[AuthorizationPolicy],
    pods: Sequence[Pod],
    *,
    owner: str,
    application: str,
    mesh: installation.Mesh,
) -> Iterable[Finding]:
    """Judge whether callers are held to what relations say."""
    ours: list[AuthorizationPolicy] = []
    others: list[AuthorizationPolicy] = []
    for each in policies:
        if each.labels.get(names.OWNER) != owner:
            others.append(each)
        elif each.labels.get(names.COMPONENT) in (FOLDER, CLOSED):
            ours.append(each)
    root = mesh.root_namespace
    shut = [pod for pod in pods if any(selects(each, pod, root) for each in ours)]
    held = [pod for pod in shut if pod.is_in_mesh]
    doubts = [
        *_unknown_callers(ours, pods, application, mesh.trust_domains[0]),
        *_unheld(shut, application),
        *_contradictions(others, held, root),
        *_called_by_nobody(ours, held, root),
    ]
    yield from doubts
    if not doubts:
        yield findings.fine(f"{len(ours)} policies hold the callers of {len(shut)} pods")


def selects(policy: AuthorizationPolicy, pod: Pod, root_namespace: str) -> bool:
    """Tell whether the pod's proxy holds the policy."""
    return not policy.is_tried and policy.attachment.includes(
        pod.metadata.labels, namespace=pod.metadata.namespace, root_namespace=root_namespace
    )


def _unknown_callers(
    ours: Sequence[AuthorizationPolicy], pods: Iterable[Pod], application: str, trust_domain: str
) -> Iterable[Finding]:
    """Find callers that are named and have no certificate to show, since they have no proxy."""
    named = {each for policy in ours for rule in policy.rules for each in rule.principals}
    running: dict[str, bool] = {}
    for pod in pods:
        account = pod.spec.service_account_name
        is_named = principal(pod.metadata.namespace, account, trust_domain) in named
        if is_named and pod.status.phase != "Succeeded":
            running[account] = pod.is_in_mesh or running.get(account, False)
    if lost := [account for account, is_known in running.items() if not is_known]:
        yield findings.broken(
            f"{texts.listed(lost)} may call by a relation and can't, having no sidecar",
            f"juju run {application}/leader list-uninjected",
        )


def _unheld(shut: Iterable[Pod], application: str) -> Iterable[Finding]:
    outside = [
        pod.metadata.name
        for pod in shut
        if not pod.is_in_mesh
        and names.NAME in pod.metadata.labels
        and not pod.metadata.name.startswith((application, names.MODELOPERATOR))
    ]
    if outside:
        yield findings.doubtful(
            f"nothing holds the callers of {texts.listed(outside)}: no sidecar",
            f"juju run {application}/leader list-uninjected",
        )


def _contradictions(
    others: Iterable[AuthorizationPolicy], held: Sequence[Pod], root: str
) -> Iterable[Finding]:
    for each in others:
        what = _WHAT.get(each.action)
        hit = [pod.metadata.name for pod in held if selects(each, pod, root)]
        is_empty = each.action == "ALLOW" and not each.rules
        if hit and what and not is_empty:
            yield findings.doubtful(
                f"{each.reference} is about {texts.listed(hit)}, too, and {what}",
                f"kubectl -n {each.namespace} get authorizationpolicy {each.name} -o yaml",
            )


def _called_by_nobody(
    ours: Sequence[AuthorizationPolicy], held: Iterable[Pod], root: str
) -> Iterable[Finding]:
    letting = [each for each in ours if each.rules]
    lonely = [
        pod.metadata.name for pod in held if not any(selects(each, pod, root) for each in letting)
    ]
    if lonely:
        yield findings.doubtful(
            f"this charm's policies let nobody call {texts.listed(lonely)}",
            "if one is to be called: write an AuthorizationPolicy that names its callers",
        )
