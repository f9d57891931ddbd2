"""Which rights does the charm lack?"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import yaml

from istio_integrator import texts
from istio_integrator.config import config
from istio_integrator.diagnosis import registry
from istio_integrator.facts import Facts
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Template

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
    "-tenants": lambda options: options.tenant_policy != "off",
    "-authorization": lambda options: options.authorization != "off",
    "-mtls": lambda options: options.mtls == "strict",
    "-training": lambda options: options.pod_networks is not None,
}
"""Suffixes of the optional roles' names, each with the options that need the role."""

_PER_NAMESPACE = "-proxies"
"""Suffix of the role that may be bound in single namespaces instead of the whole cluster."""


class Right(NamedTuple):
    """A permission for a verb on a resource."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    """Empty: the whole cluster."""
    name: str = ""
    role: str = ""
    """The shipped role that grants it."""

    @property
    def text(self) -> str:
        """The permission in messages."""
        group = f".{self.group}" if self.group else ""
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {self.resource}{group}{name}"

    def render_review(self) -> cluster.Object:
        """Render the SelfSubjectAccessReview for the permission."""
        attributes = {key: value for key, value in self._asdict().items() if key != "role"}
        attributes["resource"], _, attributes["subresource"] = self.resource.partition("/")
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": attributes},
        }


_EVERYTHING = Right("*", "*", "*")
"""The permission that --trust grants."""


@registry.check("rights", place=220, symptoms=("is-forbidden-user",))
def check_rights(facts: Facts) -> Iterable[Message]:
    """Name the rights of `rbac/roles.yaml` that are missing."""
    if _is_right_granted(facts, _EVERYTHING):
        yield Template.TRUSTED()
        return
    shipped = read_roles(
        _ROLES.read_text(), model=facts.situation.model, application=facts.situation.application
    )
    optional = tuple(
        end for end, is_needed in OPTIONAL.items() if not is_needed(facts.situation.config)
    )
    missing: dict[str, list[str]] = {}
    for need in list_rights(shipped, model=facts.situation.model):
        is_needed = facts.situation.is_exposed or not is_for_ingress(need)
        is_needed &= not need.role.endswith(optional)
        if is_needed and not _is_right_granted(facts, need):
            missing.setdefault(need.role, []).append(need.text)
    for lacked in missing.values():
        rights = texts.join_names(lacked)
        yield Template.RIGHTS_MISSING(rights=rights, application=facts.situation.application)
    if not missing:
        yield Template.RIGHTS_GIVEN()


def _is_right_granted(facts: Facts, need: Right) -> bool:
    answer = facts.situation.cluster.create(need.render_review())
    return cluster.at(answer, "status").get("allowed") is True


def is_for_ingress(need: Right) -> bool:
    """Tell whether a permission is used only if an application requests ingress."""
    if not need.role.endswith(("-mesh", "-model")):
        return need.role.endswith(("-own-gateway", "-tenants"))
    is_seen = need.role.endswith("-mesh") and need.verb in ("get", "list", "watch")
    return (
        (need.group == "networking.istio.io" and need.resource != "sidecars")
        or (need.group == "security.istio.io" and bool(need.name))
        or (is_seen and (need.group, need.resource) == ("", "services"))
    )


def read_roles(text: str, *, model: str, application: str) -> list[cluster.Object]:
    """Read rbac/roles.yaml with the actual names, as its instructions do with sed."""
    named = text.replace("MODEL", model).replace("APPLICATION", application)
    return list(yaml.safe_load_all(named))


def list_rights(roles: Iterable[cluster.Object], *, model: str) -> list[Right]:
    """List the permissions of roles; those that may be bound by namespace, for the model."""
    found: dict[Right, None] = {}
    for role in roles:
        name = role["metadata"]["name"]
        everywhere = model if name.endswith(_PER_NAMESPACE) else ""
        place = role["metadata"].get("namespace", everywhere)
        for rule in cluster.items(role, "rules"):
            parts = (rule["verbs"], rule["apiGroups"], rule["resources"])
            for right in itertools.product(*parts, [place], rule.get("resourceNames") or [""]):
                found[Right(*right, name)] = None
    return list(found)
