"""Do policies and mutual TLS admit the callers that relations name?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from integrator_contract import names
from istio_integrator import findings, preview
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.istio import proxies
from istio_integrator.istio.authorization_policy import AuthorizationPolicy
from istio_integrator.kube import cluster
from istio_integrator.mtls import mtls
from istio_integrator.policies import policies
from istio_integrator.policies.callers import judge as judge_callers
from istio_integrator.situation import model


@registry.check("callers", place=165, feeds_status=True, symptoms=("rbac-access-denied",))
def callers(facts: Facts) -> Iterable[Finding]:
    """With `authorization`, name who is refused or let in otherwise than relations say."""
    if facts.mesh is None or facts.config.authorization == "off":
        return ()
    places = (facts.model, facts.mesh.root_namespace)
    return judge_callers(
        [each for each in facts.policies if each.namespace in places],
        model.read(facts.pods, model.Pod),
        owner=facts.manifests.owner,
        application=facts.application,
        mesh=facts.mesh,
    )


@registry.check("others", place=160, symptoms=("rbac-access-denied",))
def others(facts: Facts) -> Iterable[Finding]:
    """Name policies of other teams that deny every call to the model's pods or to its gateway."""
    if facts.mesh is None:
        return ()
    pods = [*filter(proxies.is_in_mesh, facts.pods), *facts.gateway_pods]
    return judge(facts.policies, pods, root=facts.mesh.root_namespace)


def judge(
    policies: Iterable[AuthorizationPolicy], pods: Sequence[cluster.Object], *, root: str
) -> Iterable[Finding]:
    """Judge the AuthorizationPolicies that this charm did not create."""
    denying: list[Finding] = []
    for each in policies:
        count = sum(each.selects(pod, root) for pod in pods) if each.denies_all else 0
        if count and names.OWNER not in each.labels:
            show = f"kubectl -n {each.namespace} get authorizationpolicy {each.name} -o yaml"
            text = f"{each.reference} denies every caller of {count} pods"
            denying.append(findings.doubtful(text, show))
    yield from denying or [findings.fine("no policy of another team denies every call")]


@registry.check("security", place=175, symptoms=("upstream-connect-error",))
def security(facts: Facts) -> Iterable[Finding]:
    """Name who can't reach whom by the option `mtls`."""
    if facts.mesh is None:
        return ()
    part = mtls.MutualTls(facts.context, facts.seen, lambda: 0)
    authorization = policies.Authorization(facts.context, facts.related, facts.seen, facts.ingress)
    return preview.lines("mtls", part.preview(facts.config, lambda: authorization.routed))
