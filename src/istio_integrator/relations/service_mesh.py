"""The interface `service_mesh`, by which applications declare their allowed callers.

An application writes its policies as the library charmlibs.interfaces.service_mesh does, and the
library reads each key of this charm's data bag as JSON. The library does not validate names, hosts
and paths, which all go into AuthorizationPolicies.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

import pydantic

from integrator_contract import bounded
from istio_integrator.relations import endpoints, kubeflow

ENDPOINT = "service-mesh"
LONGEST = 4 * bounded.LONGEST
"""Characters of an application's policies, enough for `MOST_POLICIES`."""
MOST_POLICIES = 512
"""Policies of one application; the library writes one for each application related to it."""
_MOST_PROBLEMS = 4
"""Problems of one application in a report."""

_Few = pydantic.Field(max_length=32)
Host = Annotated[
    kubeflow.Text,
    pydantic.Field(max_length=253),
    kubeflow.require_pattern(
        r"(?i:\*|\*?[a-z0-9.-]+(:[0-9]{1,5})?|[a-z0-9.-]+\*)",
        "is not a host such as kfp-api.kubeflow.svc.cluster.local",
    ),
]
Method = Annotated[
    kubeflow.Text, kubeflow.require_pattern("[A-Z]{1,16}", "is not a method such as GET")
]
# Istio reads braces as templates, and an asterisk at either end as a wildcard.
Path = Annotated[
    kubeflow.Text,
    pydantic.Field(max_length=256),
    kubeflow.require_pattern(r"(\*|/)[!-)+-z|~]*\*?", "is not a path such as /metrics or /apis/*"),
]
_WORD = "[A-Za-z0-9][-A-Za-z0-9_.]{0,62}"
LabelKey = Annotated[
    kubeflow.Text,
    kubeflow.require_pattern(rf"([a-z0-9][-a-z0-9.]{{0,252}}/)?{_WORD}", "is not a label"),
]
LabelValue = Annotated[
    kubeflow.Text, kubeflow.require_pattern(f"({_WORD})?", "is not the value of a label")
]


class AllowedRequests(kubeflow.Wire):
    """Allowed requests to the target; None: not restricted."""

    hosts: Annotated[tuple[Host, ...], _Few] | None = None
    ports: Annotated[tuple[kubeflow.Port, ...], _Few] | None = None
    """Ports of the Service if the target is an application, of the pod if it is a unit."""
    methods: Annotated[tuple[Method, ...], _Few] | None = None
    paths: Annotated[tuple[Path, ...], _Few] | None = None


class MeshPolicy(kubeflow.Wire):
    """A policy by which one application may call another."""

    source_namespace: kubeflow.DnsLabel
    source_app_name: kubeflow.DnsLabel
    target_namespace: kubeflow.DnsLabel
    target_app_name: kubeflow.DnsLabel | None = None
    target_selector_labels: (
        Annotated[dict[LabelKey, LabelValue], pydantic.Field(min_length=1, max_length=16)] | None
    ) = None
    target_service: kubeflow.DnsLabel | None = None
    target_type: Literal["app", "unit"] = "app"
    endpoints: Annotated[tuple[AllowedRequests, ...], pydantic.Field(max_length=16)] = ()
    """Empty: not restricted."""

    @pydantic.model_validator(mode="after")
    def _names_its_target(self) -> Self:
        if self.target_type == "app":
            if self.target_selector_labels or not (self.target_app_name or self.target_service):
                raise ValueError("is for an application and names none, or labels")
        elif self.target_service or (self.target_app_name and self.target_selector_labels):
            raise ValueError("is for units and names a Service, or both a name and labels")
        elif any(each.hosts or each.methods or each.paths for each in self.endpoints):
            raise ValueError("is for units and speaks of hosts, methods or paths: only of ports")
        return self


@dataclasses.dataclass(frozen=True, kw_only=True)
class ApplicationPolicies:
    """The policies of one related application."""

    reference: str
    """The relation's name in messages: `service-mesh:3 kfp-api`."""
    application: str
    policies: tuple[MeshPolicy, ...] = ()
    problems: tuple[str, ...] = ()
    """The reasons why other policies, or all, are invalid."""


def read_policies(bag: endpoints.Bag, *, model: str) -> ApplicationPolicies:
    """Read an application's data bag; policies for targets outside of `model` are invalid."""
    policies: list[MeshPolicy] = []
    entries, problem = _read_entries(bag)
    problems = [problem] if problem else []
    for number, entry in enumerate(entries or (), 1):
        policy, problem = kubeflow.read_message(
            functools.partial(MeshPolicy.model_validate, entry)
        )
        if policy is None:
            problems.append(f"policy {number}: {problem}")
        elif policy.target_namespace != model:
            namespace = policy.target_namespace
            problems.append(f"policy {number} is for namespace {namespace}, which is not {model}")
        else:
            policies.append(policy)
    if (more := len(problems) - _MOST_PROBLEMS) > 0:
        problems[_MOST_PROBLEMS:] = [f"and {more} more"]
    return ApplicationPolicies(
        reference=f"{ENDPOINT}:{bag.relation} {bag.application}",
        application=bag.application,
        policies=tuple(policies),
        problems=tuple(problems),
    )


def _read_entries(bag: endpoints.Bag) -> tuple[list[Any] | None, str]:
    text = bag.content.get("policies", "")
    if text and kubeflow.is_of_another_model(bag.application):
        return None, "is of a different model: relate it to the integrator of that model"

    def parse() -> list[Any]:
        listed = bounded.read_json(text or "[]", longest=LONGEST)
        if not isinstance(listed, list):
            raise bounded.DocumentError("is no list of policies")
        entries = cast("list[Any]", listed)
        if len(entries) > MOST_POLICIES:
            raise bounded.DocumentError(f"has more than {MOST_POLICIES} policies")
        return entries

    return kubeflow.read_message(parse)


def read_requests(related: endpoints.Relations, *, model: str) -> list[ApplicationPolicies]:
    """Read the data bag of every related application, the oldest relation first."""
    return [read_policies(bag, model=model) for bag in related.list_bags(ENDPOINT)]


def publish_labels(related: endpoints.Relations, *, labels: Mapping[str, str]) -> None:
    """Write to every application the labels that make its pods members of the mesh."""
    bag = {"labels": json.dumps(dict(labels), sort_keys=True), "mesh_type": json.dumps("istio")}
    related.write(ENDPOINT, bag)
