"""Callers that policies deny or admit against their relations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from integrator_contract import names
from istio_integrator import texts
from istio_integrator.istio import installation
from istio_integrator.istio.authorization_policy import AuthorizationPolicy, make_principal
from istio_integrator.messages import Message, Template
from istio_integrator.situation.model import Pod
from istio_integrator.situation.situation import Situation

FOLDER = "authorization"
"""The component label of policies with callers."""
CLOSED = "authorization-closed"
"""The component label of the policy that denies all other calls."""
_EFFECTS = {
    "ALLOW": "admits callers beside them",
    "DENY": "denies some of their callers",
    "CUSTOM": "has another service decide about them",
}


def judge_callers(
    scope: Situation,
    mesh: installation.Mesh,
    policies: Iterable[AuthorizationPolicy],
    pods: Sequence[Pod],
) -> Iterable[Message]:
    """Check whether existing or planned policies admit exactly the callers of relations."""
    owner, application = scope.manifests.owner, scope.application
    ours: list[AuthorizationPolicy] = []
    others: list[AuthorizationPolicy] = []
    for each in policies:
        if each.labels.get(names.OWNER) != owner:
            others.append(each)
        elif each.labels.get(names.COMPONENT) in (FOLDER, CLOSED):
            ours.append(each)

    def selects(policy: AuthorizationPolicy, pod: Pod) -> bool:
        return policy.selects(
            pod.metadata.labels, pod.metadata.namespace, mesh.settings.root_namespace
        )

    shut = [pod for pod in pods if any(selects(each, pod) for each in ours)]
    held = [pod for pod in shut if pod.is_in_mesh]
    admitting = [each for each in ours if each.rules]
    doubts: list[Message] = []
    if lost := _list_callers_without_proxy(ours, pods, mesh.settings.trust_domains[0]):
        doubts.append(
            Template.CALLER_WITHOUT_SIDECAR(
                callers=texts.join_names(lost), application=application
            )
        )
    if outside := [
        pod.metadata.name
        for pod in shut
        if not pod.is_in_mesh
        and names.NAME in pod.metadata.labels
        and not names.is_machinery(pod.metadata.labels, application)
    ]:
        doubts.append(
            Template.CALLED_WITHOUT_SIDECAR(
                pods=texts.join_names(outside), application=application
            )
        )
    for each in others:
        hit = [pod.metadata.name for pod in held if selects(each, pod)]
        effect = _EFFECTS.get(each.action)
        # A policy without rules matches no request, whatever its action is.
        if hit and effect and each.rules:
            place = {"namespace": each.namespace, "name": each.name}
            about = {"policy": each.reference, "pods": texts.join_names(hit), "effect": effect}
            doubts.append(Template.POLICY_INTERFERES(**about, **place))
    if lonely := [
        pod.metadata.name for pod in held if not any(selects(each, pod) for each in admitting)
    ]:
        doubts.append(Template.CALLED_BY_NONE(pods=texts.join_names(lonely)))
    yield from doubts or [Template.CALLERS_HELD(policies=len(ours), pods=len(shut))]


def _list_callers_without_proxy(
    ours: Sequence[AuthorizationPolicy], pods: Iterable[Pod], trust_domain: str
) -> list[str]:
    """List the callers in rules whose pods have no proxy."""
    named = {each for policy in ours for rule in policy.rules for each in rule.principals}
    running: dict[str, bool] = {}
    for pod in pods:
        account = pod.spec.service_account_name
        is_named = make_principal(pod.metadata.namespace, account, trust_domain) in named
        if is_named:
            running[account] = pod.is_in_mesh or running.get(account, False)
    return [account for account, is_known in running.items() if not is_known]
