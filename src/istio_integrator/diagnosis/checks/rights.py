"""Which rights does the charm lack?"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import yaml

from istio_integrator import findings
from istio_integrator.config import config
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster

_ROLES = pathlib.Path(__file__).parents[4] / "rbac" / "roles.yaml"
OPTIONAL: Mapping[str, Callable[[config.Config], bool]] = {
    "-exec": lambda _: False,
    "-diagnose": lambda _: False,
    "-claims": lambda _: False,
    "-replace": lambda options: options.delete_broken_pods,
    "-gateway": lambda options: (
        options.routing == "virtualservice" and not options.gateway_service
    ),
    "-httproutes": lambda options: options.routing == "gateway-api",
    "-authorization": lambda options: options.authorization != "off",
    "-mtls": lambda options: options.mtls == "strict",
}
"""The ends of the names of roles that may be left out, each with the options that need it."""

_PER_NAMESPACE = "-proxies"
"""The end of the name of the role that may be bound in each namespace instead of everywhere."""


@dataclasses.dataclass(frozen=True, order=True)
class Need:
    """One right."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    """Where; empty: everywhere."""
    name: str = ""
    role: str = ""
    """Which of the shipped roles gives it."""

    @property
    def text(self) -> str:
        """How people name it."""
        group = f".{self.group}" if self.group else ""
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {self.resource}{group}{name}"

    def review(self) -> cluster.Object:
        """Write the question whether we have it."""
        resource, _, sub = self.resource.partition("/")
        attributes = {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": sub,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": attributes},
        }


EVERYTHING = Need("*", "*", "*")
"""What --trust gives."""
_SEEN_FOR_INGRESS = frozenset(
    (verb, group, resource)
    for verb in ("list", "watch")
    for group, resource in (("apps", "daemonsets"), ("", "services"))
)
"""Verb, group and resource of what is read, outside of Istio's kinds, for ingress only."""


@registry.check(
    "rights",
    place=220,
    question="which are missing of `rbac/roles.yaml`",
    reads="SelfSubjectAccessReviews",
    symptoms=("is-forbidden-user",),
)
def rights(facts: Facts) -> Iterable[Finding]:
    """Ask whether each right of the shipped roles is given, as far as the options need it."""
    if _is_given(facts, EVERYTHING):
        yield findings.fine("the application is trusted with the whole cluster")
        return
    shipped = roles(_ROLES.read_text(), model=facts.model, application=facts.application)
    needed = needs(shipped, model=facts.model)
    if not facts.exposes:
        needed = [need for need in needed if not is_for_ingress(need)]
    optional = [end for end, is_needed in OPTIONAL.items() if not is_needed(facts.config)]
    answers = {need: _is_given(facts, need) for need in needed}
    yield from judge(answers, optional=optional, application=facts.application)


def _is_given(facts: Facts, need: Need) -> bool:
    answer = facts.cluster.create(need.review())
    return cluster.at(answer, "status").get("allowed") is True


def judge(
    answers: Mapping[Need, bool],
    *,
    optional: Collection[str],
    application: str,
) -> Iterable[Finding]:
    """Judge which rights are missing.

    Args:
        answers: What the API server said about each.
        optional: The ends of the names of roles that may be left out.
        application: Ours.
    """
    missing: dict[str, list[Need]] = {}
    for need, allowed in answers.items():
        if not allowed and not need.role.endswith(tuple(optional)):
            missing.setdefault(need.role, []).append(need)
    for lacked in missing.values():
        what = report.listed(need.text for need in lacked)
        yield findings.broken(f"{application} may not {what}", report.grant(application))
    if not missing:
        yield findings.fine("all rights that the charm needs are given")


def is_for_ingress(need: Need) -> bool:
    """Tell whether a right is used only where an application is related to ingress."""
    written = need.group == "security.istio.io" and bool(need.name)
    routed = need.group == "networking.istio.io" and need.resource != "sidecars"
    kept = need.name.endswith(("-gateway-service", "-route-token"))
    seen = (need.verb, need.group, need.resource) in _SEEN_FOR_INGRESS
    is_shared = need.role.endswith(("-mesh", "-model")) and (
        routed or written or kept or (seen and need.role.endswith("-mesh"))
    )
    return is_shared or need.role.endswith("-own-gateway")


def roles(text: str, *, model: str, application: str) -> list[cluster.Object]:
    """Read the shipped roles with our names, as the instructions at their head do with sed.

    Args:
        text: Of rbac/roles.yaml.
        model: Ours.
        application: Ours.
    """
    named = text.replace("MODEL", model).replace("APPLICATION", application)
    return list(yaml.safe_load_all(named))


def needs(roles: Iterable[cluster.Object], *, model: str) -> list[Need]:
    """List the rights that roles give.

    Args:
        roles: Documents, with their bindings among them.
        model: Where a role is looked at that may be bound in each namespace.
    """
    found: dict[Need, None] = {}
    for role in roles:
        metadata = role["metadata"]
        everywhere = model if metadata["name"].endswith(_PER_NAMESPACE) else ""
        for rule in cluster.items(role, "rules"):
            place = metadata.get("namespace", everywhere)
            for need in _of_rule(rule, metadata["name"], place):
                found[need] = None
    return list(found)


def _of_rule(rule: Mapping[str, Any], role: str, namespace: str) -> Iterable[Need]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or ("",):
                    yield Need(verb, group, resource, namespace, name, role)
