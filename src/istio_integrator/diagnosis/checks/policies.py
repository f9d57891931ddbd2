"""Do policies and mutual TLS admit the callers that they should, and no others?"""

from __future__ import annotations

from collections.abc import Iterable

from integrator_contract import names
from istio_integrator import texts
from istio_integrator.diagnosis import registry
from istio_integrator.facts import Facts
from istio_integrator.istio.authorization_policy import (
    AuthorizationRule,
    InboundRequest,
    Truth,
    make_principal,
)
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Template
from istio_integrator.mtls import members, mtls
from istio_integrator.policies import callers as callers_judged

_USER_HEADER = "request.headers["
_CLAIM = "request.headers[kubeflow-userid]"
_TRUSTING = (
    "jupyter-ui",
    "katib-ui",
    "kfp-api",
    "kfp-ui",
    "kubeflow-dashboard",
    "kubeflow-profiles",
    "kubeflow-volumes",
    "ml-pipeline",
    "tensorboards-web-app",
)
"""Services of Kubeflow that read the user from a header."""


@registry.check("callers", place=165, feeds_status=True, symptoms=("rbac-access-denied",))
def check_callers(facts: Facts) -> Iterable[Message]:
    """List callers that are allowed or denied contrary to their relations."""
    if facts.mesh is None or facts.situation.config.authorization == "off":
        return ()
    places = (facts.situation.model, facts.mesh.settings.root_namespace)
    policies = [each for each in facts.policies if each.namespace in places]
    return callers_judged.judge_callers(facts.situation, facts.mesh, policies, facts.pods)


@registry.check("others", place=160, symptoms=("rbac-access-denied",))
def check_other_policies(facts: Facts) -> Iterable[Message]:
    """Name policies of other teams that deny every call to the model's pods or to its gateway."""
    if facts.mesh is None:
        return
    root, denying = facts.mesh.settings.root_namespace, list[Message]()
    pods = [*(each for each in facts.pods if each.is_in_mesh), *facts.gateway_pods]
    for each in facts.policies:
        if each.denies_all and names.OWNER not in each.labels:
            selected = (
                each.selects(pod.metadata.labels, pod.metadata.namespace, root) for pod in pods
            )
            count = sum(selected)
            place = {"namespace": each.namespace, "name": each.name}
            if count:
                denying.append(Template.CALLS_DENIED(policy=each.reference, count=count, **place))
    yield from denying or [Template.CALLS_NOT_DENIED()]


@registry.check("security", place=175, symptoms=("upstream-connect-error",))
def check_security(facts: Facts) -> Iterable[Message]:
    """Name callers that the option `mtls` denies."""
    if facts.mesh is None:
        return ()
    return mtls.MutualTls(facts).preview(facts.situation.config)


@registry.check("client TLS", place=176, symptoms=("upstream-connect-error",))
def check_client_tls(facts: Facts) -> Iterable[Message]:
    """Name DestinationRules by which clients expect a certificate of a pod without a sidecar."""
    if facts.mesh is None or facts.data_plane != "sidecar":
        return
    outside = [pod for pod in facts.pods if not pod.is_in_mesh]
    services = facts.services
    for rule in members.list_rule_clients(
        facts.situation.cluster.list(cluster.DESTINATION_RULE),
        ("ISTIO_MUTUAL",),
        model_name=facts.situation.model,
        domain=facts.situation.cluster_domain,
    ):
        for service in services:
            behind = [pod for pod in outside if service.selector <= pod.labels]
            if rule.service in (service.name, "*") and service.selector and behind:
                yield Template.CERTIFICATE_EXPECTED(
                    rule=rule.reference,
                    service=service.name,
                    pod=behind[0].metadata.name,
                    namespace=facts.situation.model,
                )


@registry.check("profiles", place=180, feeds_status=True, symptoms=("rbac-access-denied",))
def check_profiles(facts: Facts) -> Iterable[Message]:
    """Check whether the policies of profile namespaces let the real gateway in."""
    # kubeflow-profiles writes the gateway's ServiceAccount into the rules about the header with
    # the user's name. With a wrong ServiceAccount every page there fails with 403 (kubeflow issue
    # 7374).
    gateway = facts.gateway if facts.profiles else None
    if gateway is None or not gateway.accounts or facts.mesh is None:
        return
    space, domain = gateway.namespace, facts.mesh.settings.trust_domains[0]
    callers = {each: make_principal(space, each, domain) for each in gateway.accounts}
    wrong: dict[tuple[str, str], list[str]] = {}
    for policy in facts.policies:
        is_asked = policy.namespace in facts.profiles and policy.action == "ALLOW"
        for rule in policy.rules if is_asked else ():
            is_about_users = any(
                each.attribute.startswith(_USER_HEADER) for each in rule.conditions
            )
            named = rule.principals
            for account, caller in callers.items() if is_about_users and named else ():
                if not _admits(rule, caller):
                    wrong.setdefault((texts.join_names(named), account), []).append(
                        policy.namespace
                    )
    for (named, account), namespaces in wrong.items():
        yield Template.PROFILES_REJECT_GATEWAY(
            namespaces=texts.join_names(namespaces),
            principals=named,
            namespace=space,
            account=account,
        )
    if not wrong:
        yield Template.PROFILES_ADMIT_GATEWAY()


@registry.check(
    "users apart", place=185, unfelt="such calls succeed, for more callers than they should"
)
def check_user_separation(facts: Facts) -> Iterable[Message]:
    """Check whether a pod in one user's namespace can pass for another user."""
    # Without a relation to `service-mesh`, kfp-profile-controller writes a policy that trusts the
    # user's header from every caller (bundle-kubeflow issue 1115).
    if facts.mesh is None or not facts.profiles:
        return
    relate = f"juju integrate {{}}:service-mesh {facts.situation.application}:service-mesh"
    other = make_principal("another-user", "default-editor", facts.mesh.settings.trust_domains[0])
    trusting = [
        f"{policy.namespace}/{policy.name}"
        for policy in facts.policies
        if policy.namespace in facts.profiles
        and policy.action == "ALLOW"
        and any(_admits(rule, other) and _is_by_claim(rule) for rule in policy.rules)
    ]
    if trusting:
        command = relate.format("kfp-profile-controller")
        yield Template.HEADER_TRUSTED(policies=texts.join_names(trusting), command=command)
    else:
        yield Template.HEADER_NOT_TRUSTED()
    ours = {
        names.OWNER: facts.situation.manifests.owner,
        names.COMPONENT: callers_judged.FOLDER,
    }
    covered = [
        frozenset(each.selector.items())
        for each in facts.policies
        if ours.items() <= each.labels.items()
    ]
    services = facts.services
    open_ones = [
        each
        for each in services
        if each.name in _TRUSTING
        and each.selector
        and not any(labels <= each.selector for labels in covered)
    ]
    if not open_ones:
        yield Template.USERS_HAVE_CALLERS()
        return
    command = relate.format(open_ones[0].application or open_ones[0].name)
    if facts.situation.config.authorization == "off":
        command = f"juju config {facts.situation.application} authorization=related"
    listed = texts.join_names(each.name for each in open_ones)
    yield Template.USERS_FROM_ANY_POD(services=listed, command=command)


def _admits(rule: AuthorizationRule, caller: str) -> bool:
    sources = AuthorizationRule(sources=rule.sources)
    return sources.matches(caller, InboundRequest(), strictly=True) is Truth.YES


def _is_by_claim(rule: AuthorizationRule) -> bool:
    return any(each.attribute == _CLAIM and not each.excludes for each in rule.conditions)
