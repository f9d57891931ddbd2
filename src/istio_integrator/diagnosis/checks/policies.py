"""Do policies and mutual TLS admit the callers that they should, and no others?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from integrator_contract import names
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.ingress import observed
from istio_integrator.istio import proxies
from istio_integrator.istio.authorization_policy import (
    AuthorizationPolicy,
    AuthorizationRule,
    Caller,
    InboundRequest,
    principal,
)
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Said
from istio_integrator.mtls import mtls
from istio_integrator.policies import callers as callers_judged
from istio_integrator.policies import decide
from istio_integrator.situation import model

_USER_HEADER = "request.headers["
_CLAIM = "request.headers[kubeflow-userid]"
_IDENTITIES = ("principals", "namespaces", "serviceAccounts", "requestPrincipals")
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
"""Services of Kubeflow that take the user from a header."""


@registry.check("callers", place=165, feeds_status=True, symptoms=("rbac-access-denied",))
def callers(facts: Facts) -> Iterable[Message]:
    """With `authorization`, name who is refused or let in otherwise than relations say."""
    if facts.mesh is None or facts.config.authorization == "off":
        return ()
    places = (facts.model, facts.mesh.root_namespace)
    return callers_judged.judge(
        [each for each in facts.policies if each.namespace in places],
        model.read(facts.pods, model.Pod),
        owner=facts.manifests.owner,
        application=facts.application,
        mesh=facts.mesh,
    )


@registry.check("others", place=160, symptoms=("rbac-access-denied",))
def others(facts: Facts) -> Iterable[Message]:
    """Name policies of other teams that deny every call to the model's pods or to its gateway."""
    if facts.mesh is None:
        return ()
    pods = [*filter(proxies.is_in_mesh, facts.pods), *facts.gateway_pods]
    return judge(facts.policies, pods, root=facts.mesh.root_namespace)


def judge(
    policies: Iterable[AuthorizationPolicy], pods: Sequence[cluster.Object], *, root: str
) -> Iterable[Message]:
    """Judge the AuthorizationPolicies that this charm did not create."""
    denying: list[Message] = []
    for each in policies:
        count = sum(each.selects(pod, root) for pod in pods) if each.denies_all else 0
        if count and names.OWNER not in each.labels:
            place = {"namespace": each.namespace, "name": each.name}
            denying.append(Said.CALLS_DENIED(policy=each.reference, count=count, **place))
    yield from denying or [Said.CALLS_NOT_DENIED()]


@registry.check("security", place=175, symptoms=("upstream-connect-error",))
def security(facts: Facts) -> Iterable[Message]:
    """Name who can't reach whom by the option `mtls`."""
    if facts.mesh is None:
        return ()
    part = mtls.MutualTls(facts.context, lambda: 0)
    return part.preview(facts.config, lambda: facts.ingress.exposure.routed)


@registry.check("profiles", place=180, feeds_status=True, symptoms=("rbac-access-denied",))
def profiles(facts: Facts) -> Iterable[Message]:
    """Check whether the policies of profile namespaces let the real gateway in."""
    if not facts.profiles or facts.mesh is None:
        return ()
    gateway = facts.gateway
    if gateway is None or not gateway.account:
        return ()
    return judge_profiles(
        [each for each in facts.policies if each.namespace in facts.profiles],
        namespace=gateway.namespace,
        account=gateway.account,
        trust_domain=facts.mesh.trust_domains[0],
    )


def judge_profiles(
    policies: Iterable[AuthorizationPolicy], *, namespace: str, account: str, trust_domain: str
) -> Iterable[Message]:
    """Judge whether the policies of profile namespaces admit the real gateway.

    kubeflow-profiles names the gateway's ServiceAccount in the rules that are about the header
    with the user's name; with another one every page there answers 403 (kubeflow issue 7374).
    """
    gateway = Caller(principal(namespace, account, trust_domain))
    wrong: dict[str, list[str]] = {}
    for policy in policies:
        for rule in policy.rules if policy.action == "ALLOW" else ():
            is_about_users = any(
                each.attribute.startswith(_USER_HEADER) for each in rule.conditions
            )
            named, sources = rule.principals, AuthorizationRule(sources=rule.sources)
            is_admitted = sources.matches(gateway, InboundRequest(), strictly=True)
            if is_about_users and named and not is_admitted:
                wrong.setdefault(report.listed(named), []).append(policy.namespace)
    for named, places in wrong.items():
        yield Said.PROFILES_REJECT_GATEWAY(
            namespaces=report.listed(places),
            principals=named,
            namespace=namespace,
            account=account,
        )
    if not wrong:
        yield Said.PROFILES_ADMIT_GATEWAY()


@registry.check(
    "users apart", place=185, unfelt="what it names works, for more callers than it should"
)
def users_apart(facts: Facts) -> Iterable[Message]:
    """Check whether a pod in one user's namespace can pass for another user."""
    if facts.mesh is None or not facts.profiles:
        return
    found = facts.objects(cluster.AUTHORIZATION_POLICY)
    of_profiles = [each for each in found if each["metadata"]["namespace"] in facts.profiles]
    relate = f"juju integrate {{}}:service-mesh {facts.application}:service-mesh"
    yield judge_claims(of_profiles, relate.format("kfp-profile-controller"))
    ours = (
        each
        for each in filter(facts.manifests.is_ours, found)
        if cluster.at(each, "metadata", "labels").get(names.COMPONENT) == callers_judged.FOLDER
    )
    services = model.read(facts.objects(cluster.SERVICE, facts.model), model.Service)
    open_ones = trusting(services, [decide.selector(each) for each in ours])
    if not open_ones:
        yield Said.USERS_HAVE_CALLERS()
        return
    command = relate.format(open_ones[0].application or open_ones[0].name)
    if facts.config.authorization == "off":
        command = f"juju config {facts.application} authorization=related"
    listed = report.listed(each.name for each in open_ones)
    yield Said.USERS_FROM_ANY_POD(services=listed, command=command)


def judge_claims(policies: Iterable[cluster.Object], command: str) -> Message:
    """Judge whether policies of profile namespaces trust the user's header from every caller.

    kfp-profile-controller makes one that does, unless it is related to `service-mesh`
    (bundle-kubeflow issue 1115).
    """
    if wrong := model.read_each(policies, _trusting):
        return Said.HEADER_TRUSTED(policies=report.listed(wrong), command=command)
    return Said.HEADER_NOT_TRUSTED()


def trusting(
    services: Iterable[model.Service], covered: Collection[model.Labels]
) -> list[model.Service]:
    """List the Services that take the user from a header of callers that no policy names."""
    return [
        each
        for each in services
        if each.name in _TRUSTING
        and each.selector
        and not any(labels <= each.selector for labels in covered)
    ]


def _trusting(policy: cluster.Object) -> list[str]:
    spec = cluster.at(policy, "spec")
    trusts = spec.get("action", "ALLOW") == "ALLOW" and any(
        _is_of_any_caller(rule)
        and any(
            each.get("key") == _CLAIM and cluster.items(each, "values")
            for each in cluster.parts(rule, "when")
        )
        for rule in cluster.parts(spec, "rules")
    )
    return [observed.reference(policy)] if trusts else []


def _is_of_any_caller(rule: cluster.Object) -> bool:
    sources = [cluster.at(each, "source") for each in cluster.parts(rule, "from")] or [{}]
    return any(
        all(set(cluster.items(one, key)) <= {"*"} for key in _IDENTITIES) for one in sources
    )
