"""Can a pod of one user pass for another user?"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, fences
from istio_integrator.security import called, policies, policies_judged

_CLAIM = f"request.headers[{policies.IDENTITY}]"
_IDENTITIES = ("principals", "namespaces", "serviceAccounts", "requestPrincipals")
BELIEVING = (
    "jupyter-ui",
    "katib-ui",
    "kfp-api",
    "kfp-ui",
    "kubeflow-dashboard",
    "kubeflow-profiles",
    "kubeflow-volumes",
    "ml-pipeline",
    "tensorboards-web-app",
    *policies.SHARED,
)
"""Services of Kubeflow that take the user from a header."""


@registry.check(
    "users apart",
    place=185,
    question="can a pod in one user's namespace pass for another user",
    reads="AuthorizationPolicies of the model and of profile namespaces, Services",
    unfelt="what it names works, for more callers than it should",
)
def users_apart(facts: Facts) -> Iterable[Finding]:
    """Look at who is believed that calls in a user's name."""
    if facts.mesh is None or not facts.profiles:
        return
    found = facts.objects(cluster.AUTHORIZATION_POLICY)
    yield from judge_profiles(
        [each for each in found if each["metadata"]["namespace"] in facts.profiles],
        application=facts.application,
    )
    covered = [
        dict(each)
        for each in policies.covered(
            each
            for each in found
            if facts.manifests.is_ours(each)
            and cluster.at(each, "metadata", "labels").get(names.COMPONENT)
            == policies_judged.FOLDER
        )
    ]
    yield from judge_model(
        called.services(facts.objects(cluster.SERVICE, facts.model)),
        covered,
        is_off=facts.config.authorization == "off",
        application=facts.application,
    )


def judge_profiles(others: Iterable[cluster.Object], *, application: str) -> Iterable[Finding]:
    """Judge whether policies of profile namespaces believe whoever claims to be the owner.

    kfp-profile-controller makes one that does, unless it is related to `service-mesh`
    (bundle-kubeflow issue 1115).

    Args:
        others: AuthorizationPolicies of profile namespaces.
        application: Ours.
    """
    believing: list[str] = []
    for each in others:
        with fences.around(cluster.reference(each)):
            if _believes(cluster.at(each, "spec")):
                believing.append(f"{each['metadata']['namespace']}/{each['metadata']['name']}")
    if believing:
        yield findings.doubtful(
            f"whoever claims to be the owner is let in by {report.listed(believing)}",
            f"juju integrate kfp-profile-controller:service-mesh {application}:service-mesh",
        )
    else:
        yield findings.fine("no policy of a profile namespace believes every caller")


def judge_model(
    services: Iterable[called.Service],
    covered: Collection[dict[str, str]],
    *,
    is_off: bool,
    application: str,
) -> Iterable[Finding]:
    """Judge whether applications that believe a header are called by those only who may say it.

    Args:
        services: Of the model.
        covered: Labels of the workloads whose callers are named.
        is_off: Whether `authorization` is.
        application: Ours.
    """
    open_ones: list[called.Service] = []
    count = 0
    for each in services:
        if each.name in BELIEVING and each.selector:
            count += 1
            if not any(labels.items() <= dict(each.selector).items() for labels in covered):
                open_ones.append(each)
    if not open_ones:
        yield findings.fine(f"{count} Services that know users by a header have named callers")
        return
    applications = sorted({each.application or each.name for each in open_ones})
    yield findings.doubtful(
        f"any pod may claim to be any user at {report.listed(each.name for each in open_ones)}",
        f"juju config {application} authorization=related"
        if is_off
        else f"juju integrate {applications[0]}:service-mesh {application}:service-mesh",
    )


def _believes(spec: cluster.Object) -> bool:
    if spec.get("action", "ALLOW") != "ALLOW":
        return False
    return any(
        any(
            each.get("key") == _CLAIM and cluster.items(each, "values")
            for each in cluster.parts(rule, "when")
        )
        and _takes_anybody(rule)
        for rule in cluster.parts(spec, "rules")
    )


def _takes_anybody(rule: cluster.Object) -> bool:
    sources = [cluster.at(each, "source") for each in cluster.parts(rule, "from")]
    return not sources or any(
        all(set(cluster.items(one, key)) <= {"*"} for key in _IDENTITIES) for one in sources
    )
