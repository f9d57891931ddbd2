"""The wire format of `service_mesh`, by which applications say who may call them.

An application writes a list of policies, in JSON, under `policies` in its data bag, as the library
charmlibs.interfaces.service_mesh serializes it; the classes here are named like the library's. It
is answered with `labels` and `mesh_type` and with nothing else: the library reads every key of our
data bag as JSON, and its hook fails by one that is none.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

import pydantic

from istio_integrator import texts
from istio_integrator.kube import documents
from istio_integrator.relations import endpoints, kubeflow

ENDPOINT = "service-mesh"
POLICIES = "policies"
LABELS = "labels"
MESH_TYPE = "mesh_type"
ISTIO = "istio"

MOST_POLICIES = 512
"""Policies of one application; the library makes one for each application related to it."""
MOST_ENDPOINTS = 16
"""Endpoints of one policy; those of Kubeflow's charms have one or two."""
LONGEST = 4 * documents.LONGEST
"""Characters of an application's policies, for the most that it may have."""
_MOST_PARTS = 32
"""Hosts, ports, methods or paths of one endpoint."""
_MOST_LABELS = 16
_LONGEST_PATH = 256
_LONGEST_HOST = 253
_MOST_PROBLEMS = 4
"""Policies of one application whose refusal is told; the others come when these are mended."""

_HOST = re.compile(r"(\*|\*?[a-z0-9.-]+(:[0-9]{1,5})?|[a-z0-9.-]+\*)", re.IGNORECASE)
_METHOD = re.compile(r"[A-Z]{1,16}")
_PATH = re.compile(r"(\*|/)[!-)+-z|~]*\*?")
"""Istio reads braces as templates, and an asterisk at either end as anything."""
_LABEL_KEY = re.compile(r"([a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,62})?")


def _host(value: str) -> str:
    if len(value) > _LONGEST_HOST or not _HOST.fullmatch(value):
        raise ValueError("is not a host such as kfp-api.kubeflow.svc.cluster.local")
    return value


def _method(value: str) -> str:
    if not _METHOD.fullmatch(value):
        raise ValueError("is not a method such as GET")
    return value


def _path(value: str) -> str:
    if len(value) > _LONGEST_PATH or not _PATH.fullmatch(value):
        raise ValueError("is not a path such as /metrics or /apis/*")
    return value


def _labels(values: dict[str, str]) -> dict[str, str]:
    if not values or len(values) > _MOST_LABELS:
        raise ValueError(f"has no labels, or more than {_MOST_LABELS}")
    for key, value in values.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise ValueError(f"'{texts.plain(key, 40)}' is not a label, or its value is not")
    return values


Text = Annotated[str, pydantic.Strict()]
Host = Annotated[Text, pydantic.AfterValidator(_host)]
Method = Annotated[Text, pydantic.AfterValidator(_method)]
Path = Annotated[Text, pydantic.AfterValidator(_path)]
Labels = Annotated[dict[Text, Text], pydantic.AfterValidator(_labels)]
_Few = pydantic.Field(max_length=_MOST_PARTS)


class _Wire(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Endpoint(_Wire):
    """What of the target may be called; None is no restriction."""

    hosts: Annotated[tuple[Host, ...], _Few] | None = None
    ports: Annotated[tuple[kubeflow.Port, ...], _Few] | None = None
    """Of the Service for an application, of the pod for a unit."""
    methods: Annotated[tuple[Method, ...], _Few] | None = None
    paths: Annotated[tuple[Path, ...], _Few] | None = None

    @property
    def is_about_requests(self) -> bool:
        """Whether it says more than a port."""
        return bool(self.hosts or self.methods or self.paths)


class MeshPolicy(_Wire):
    """One application that may call another."""

    source_namespace: kubeflow.DnsLabel
    source_app_name: kubeflow.DnsLabel
    target_namespace: kubeflow.DnsLabel
    target_app_name: kubeflow.DnsLabel | None = None
    target_selector_labels: Labels | None = None
    target_service: kubeflow.DnsLabel | None = None
    target_type: Literal["app", "unit"] = "app"
    endpoints: Annotated[tuple[Endpoint, ...], pydantic.Field(max_length=MOST_ENDPOINTS)] = ()
    """None at all is no restriction."""

    @pydantic.model_validator(mode="after")
    def _names_its_target(self) -> Self:
        if self.target_type == "app":
            if self.target_selector_labels or not (self.target_app_name or self.target_service):
                raise ValueError("is for an application and names none, or labels")
        elif self.target_service or (self.target_app_name and self.target_selector_labels):
            raise ValueError("is for units and names a Service, or both a name and labels")
        elif any(endpoint.is_about_requests for endpoint in self.endpoints):
            raise ValueError("is for units and speaks of hosts, methods or paths: only of ports")
        return self


@dataclasses.dataclass(frozen=True, kw_only=True)
class Received:
    """What one related application said."""

    relation: int
    """The relation's id, which is unique in the model."""
    application: str
    policies: tuple[MeshPolicy, ...] = ()
    problems: tuple[str, ...] = ()
    """What is wrong with others of its policies, or with all."""

    @property
    def reference(self) -> str:
        """How people know the relation: `service-mesh:3 kfp-api`."""
        return f"{ENDPOINT}:{self.relation} {self.application}"


def read(bag: endpoints.Bag, *, model: str) -> Received:
    """Read an application's data bag.

    Args:
        bag: What it wrote.
        model: The namespace that its policies may be for.
    """
    one = Received(relation=bag.relation, application=bag.application)
    text = bag.content.get(POLICIES, "")
    if not text:
        return one
    if kubeflow.is_of_another_model(bag.application):
        return dataclasses.replace(one, problems=(_ELSEWHERE,))
    try:
        entries = _entries(text)
    except documents.DocumentError as error:
        said = texts.plain(f"sends a document that {error}", texts.LONGEST_PROBLEM)
        return dataclasses.replace(one, problems=(said,))
    policies: list[MeshPolicy] = []
    problems: list[str] = []
    for number, entry in enumerate(entries, 1):
        try:
            policy = MeshPolicy.model_validate(entry)
        except pydantic.ValidationError as error:
            problems.append(f"policy {number}: {texts.problems(error)}")
            continue
        if policy.target_namespace == model:
            policies.append(policy)
        else:
            namespace = policy.target_namespace
            problems.append(f"policy {number} is for namespace {namespace}, which is not {model}")
    return dataclasses.replace(one, policies=tuple(policies), problems=_told(problems))


_ELSEWHERE = "is of another model: relate it to an integrator of its own model"


def _entries(text: str) -> list[Any]:
    listed = documents.read_json(text, longest=LONGEST)
    if not isinstance(listed, list):
        raise documents.DocumentError("is no list of policies")
    entries = cast("list[Any]", listed)
    if len(entries) > MOST_POLICIES:
        raise documents.DocumentError(f"has {len(entries)} policies, more than {MOST_POLICIES}")
    return entries


def _told(problems: list[str]) -> tuple[str, ...]:
    more = len(problems) - _MOST_PROBLEMS
    return tuple(problems[:_MOST_PROBLEMS]) + ((f"and {more} more",) if more > 0 else ())


def received(related: endpoints.Relations, *, model: str) -> list[Received]:
    """List what every related application said, the oldest relation first.

    Args:
        related: The relations.
        model: Our namespace, which is theirs unless Juju names them as of another model.
    """
    found = [read(bag, model=model) for bag in related.bags(ENDPOINT)]
    return sorted(found, key=lambda one: one.relation)


def answer(related: endpoints.Relations, *, labels: Mapping[str, str]) -> None:
    """Tell every application which labels make its pods members.

    Args:
        related: The relations.
        labels: None where its namespace is a member: then nothing changes about its pods.
    """
    bag = {LABELS: json.dumps(dict(labels), sort_keys=True), MESH_TYPE: json.dumps(ISTIO)}
    related.write(ENDPOINT, bag)
