"""Do the policies of profile namespaces let the gateway in?"""

from __future__ import annotations

from collections.abc import Iterable

from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.istio.authorization_policy import (
    AuthorizationPolicy,
    AuthorizationRule,
    Caller,
    InboundRequest,
    principal,
)

_USER_HEADER = "request.headers["


@registry.check("profiles", place=180, feeds_status=True, symptoms=("rbac-access-denied",))
def profiles(facts: Facts) -> Iterable[Finding]:
    """Check whether the policies of profile namespaces let the real gateway in."""
    if not facts.profiles or facts.mesh is None:
        return ()
    gateway = facts.gateway
    if gateway is None or not gateway.account:
        return ()
    return judge(
        [each for each in facts.policies if each.namespace in facts.profiles],
        namespace=gateway.namespace,
        account=gateway.account,
        trust_domain=facts.mesh.trust_domains[0],
    )


def judge(
    policies: Iterable[AuthorizationPolicy], *, namespace: str, account: str, trust_domain: str
) -> Iterable[Finding]:
    """Judge whether the policies of profile namespaces let the real gateway in.

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
        yield findings.broken(
            f"the policies of {report.listed(places)} let {named} in, and the gateway is "
            f"{namespace}/{account}: every page there answers 403",
            f"juju config kubeflow-profiles istio-gateway-namespace={namespace} "
            f"istio-gateway-service-account={account}",
        )
    if not wrong:
        yield findings.fine("the policies of profile namespaces let the gateway in")
