"""Do the policies for the model's workloads do what relations say?"""

from __future__ import annotations

from collections.abc import Iterable

from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster
from istio_integrator.security import policies_judged


@registry.check(
    "callers",
    place=165,
    question="with authorization, who is refused or let in otherwise than relations say",
    reads="AuthorizationPolicies, pods",
    feeds_status=True,
    symptoms=("rbac-access-denied",),
)
def callers(facts: Facts) -> Iterable[Finding]:
    """Look at our policies, their callers, and policies of others for the same pods."""
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
