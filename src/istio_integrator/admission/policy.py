"""The MutatingAdmissionPolicy: what its templates are given, and the namespaces it serves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from integrator_contract import namespaces, pods
from istio_integrator.admission import settings as admission_settings

FOLDER = "admission-policy"
VERSIONS = ("v1", "v1beta1")
"""Of the API, the better one first."""

Namespaces = tuple[tuple[str, tuple[dict[str, Any], ...]], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in admission-policy."""

    version: str
    """Of the policy API: `v1` or `v1beta1`."""
    name: str
    seen: str
    """For the annotation by which it is read back."""
    settings: pods.Settings
    pod_labels_keys: tuple[str, ...]
    pod_annotations_keys: tuple[str, ...]
    namespace_selectors: Namespaces


def name(owner: str) -> str:
    """Name an application's policy."""
    return f"istio-integrator.{owner}".lower()


def context(
    prepared: admission_settings.Preparation,
    selected: Namespaces,
    *,
    owner: str,
    version: str = "v1",
) -> Context:
    """Put what new pods get into the words of the policy's templates."""
    settings = prepared.settings
    return Context(
        version=version,
        name=name(owner),
        seen=prepared.seen.text(),
        settings=settings,
        pod_labels_keys=_keys(settings.pod_labels),
        pod_annotations_keys=_keys(settings.pod_annotations),
        namespace_selectors=selected,
    )


def _keys(rules: Iterable[pods.Entries]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for rule in rules for key in rule.add))


def namespace_selectors(served: namespaces.Served) -> Namespaces:
    """Write the selector of each kind of namespace that is served, as the API has them."""
    return tuple(
        (kind, tuple(requirement.as_expression() for requirement in selector))
        for kind, selector in served.as_selectors()
    )
