"""Do policies and mutual TLS admit the callers that relations name?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.istio import plaintext
from istio_integrator.kube import cluster, fences
from istio_integrator.security import (
    mutual_tls,
    policies_judged,
    policies_upkeep,
    preview,
    preview_mutual_tls,
)


@registry.check("callers", place=165, feeds_status=True, symptoms=("rbac-access-denied",))
def callers(facts: Facts) -> Iterable[Finding]:
    """With `authorization`, name who is refused or let in otherwise than relations say."""
    if facts.mesh is None or facts.config.authorization == "off":
        return ()
    places = (facts.model, facts.mesh.root_namespace)
    found = facts.objects(cluster.AUTHORIZATION_POLICY)
    return policies_judged.judge(
        [each for each in found if each["metadata"]["namespace"] in places],
        facts.pods,
        owner=facts.manifests.owner,
        model=facts.model,
        application=facts.application,
    )


@registry.check("others", place=160, symptoms=("rbac-access-denied",))
def others(facts: Facts) -> Iterable[Finding]:
    """Name policies of other teams that deny every call to the model's pods or to its gateway."""
    if facts.mesh is None:
        return ()
    pods = [*filter(plaintext.is_in_mesh, facts.pods), *facts.gateway_pods]
    found = facts.objects(cluster.AUTHORIZATION_POLICY)
    return judge(found, pods, root=facts.mesh.root_namespace)


def judge(
    policies: Iterable[cluster.Object], pods: Sequence[cluster.Object], *, root: str
) -> Iterable[Finding]:
    """Judge the AuthorizationPolicies that this charm did not create."""
    denying: list[Finding] = []
    for each in policies:
        with fences.around(cluster.reference(each)):
            namespace, name = each["metadata"]["namespace"], each["metadata"]["name"]
            count = sum(
                namespace in (root, pod["metadata"]["namespace"])
                and plaintext.selects(each, cluster.at(pod, "metadata", "labels"))
                for pod in pods
            )
            is_ours = names.OWNER in cluster.at(each, "metadata", "labels")
            if count and _denies_all(cluster.at(each, "spec")) and not is_ours:
                show = f"kubectl -n {namespace} get authorizationpolicy {name} -o yaml"
                text = f"{cluster.reference(each)} denies every caller of {count} pods"
                denying.append(findings.doubtful(text, show))
    yield from denying or [findings.fine("no policy of another team denies every call")]


def _denies_all(spec: cluster.Object) -> bool:
    rules, action = cluster.items(spec, "rules"), spec.get("action", "ALLOW")
    return not rules if action == "ALLOW" else action == "DENY" and not all(rules)


@registry.check("security", place=175, symptoms=("upstream-connect-error",))
def security(facts: Facts) -> Iterable[Finding]:
    """Name who can't reach whom by the option `mtls`."""
    if facts.mesh is None:
        return ()
    part = mutual_tls.MutualTls(facts.context, facts.seen, lambda: 0)
    authorization = policies_upkeep.Authorization(
        facts.context, facts.related, facts.seen, facts.ingress
    )
    subject = preview.Subject(facts.context, facts.config, part, authorization, facts.seen)
    return preview.preview(subject, preview_mutual_tls.OPTION)
