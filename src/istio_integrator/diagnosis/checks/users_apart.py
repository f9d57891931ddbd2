"""Can a pod of one user pass for another user?"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.ingress import observed
from istio_integrator.kube import cluster
from istio_integrator.policies import callers, decide
from istio_integrator.situation import model

_CLAIM = "request.headers[kubeflow-userid]"
_IDENTITIES = ("principals", "namespaces", "serviceAccounts", "requestPrincipals")
_BELIEVING = (
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


@registry.check(
    "users apart", place=185, unfelt="what it names works, for more callers than it should"
)
def users_apart(facts: Facts) -> Iterable[Finding]:
    """Check whether a pod in one user's namespace can pass for another user."""
    if facts.mesh is None or not facts.profiles:
        return
    found = facts.objects(cluster.AUTHORIZATION_POLICY)
    of_profiles = [each for each in found if each["metadata"]["namespace"] in facts.profiles]
    mesh = f"{facts.application}:service-mesh"
    yield judge_profiles(of_profiles, f"juju integrate kfp-profile-controller:service-mesh {mesh}")
    ours = (
        each
        for each in filter(facts.manifests.is_ours, found)
        if cluster.at(each, "metadata", "labels").get(names.COMPONENT) == callers.FOLDER
    )
    services = model.read(facts.objects(cluster.SERVICE, facts.model), model.Service)
    open_ones = believing(services, [decide.selector(each) for each in ours])
    if not open_ones:
        yield findings.fine("Services that know users by a header have named callers")
        return
    first = open_ones[0].application or open_ones[0].name
    yield findings.doubtful(
        f"any pod may claim to be any user at {report.listed(each.name for each in open_ones)}",
        f"juju config {facts.application} authorization=related"
        if facts.config.authorization == "off"
        else f"juju integrate {first}:service-mesh {mesh}",
    )


def judge_profiles(others: Iterable[cluster.Object], remedy: str) -> Finding:
    """Judge whether policies of profile namespaces believe every caller that names the owner.

    kfp-profile-controller makes one that does, unless it is related to `service-mesh`
    (bundle-kubeflow issue 1115).
    """
    if wrong := model.read_each(others, _believing):
        text = f"whoever claims to be the owner is let in by {report.listed(wrong)}"
        return findings.doubtful(text, remedy)
    return findings.fine("no policy of a profile namespace believes every caller")


def believing(
    services: Iterable[model.Service], covered: Collection[model.Labels]
) -> list[model.Service]:
    """List the Services that take the user from a header of callers that no policy names."""
    return [
        each
        for each in services
        if each.name in _BELIEVING
        and each.selector
        and not any(labels <= each.selector for labels in covered)
    ]


def _believing(policy: cluster.Object) -> list[str]:
    spec = cluster.at(policy, "spec")
    believes = spec.get("action", "ALLOW") == "ALLOW" and any(
        _is_of_any_caller(rule)
        and any(
            each.get("key") == _CLAIM and cluster.items(each, "values")
            for each in cluster.parts(rule, "when")
        )
        for rule in cluster.parts(spec, "rules")
    )
    return [observed.reference(policy)] if believes else []


def _is_of_any_caller(rule: cluster.Object) -> bool:
    sources = [cluster.at(each, "source") for each in cluster.parts(rule, "from")] or [{}]
    return any(
        all(set(cluster.items(one, key)) <= {"*"} for key in _IDENTITIES) for one in sources
    )
