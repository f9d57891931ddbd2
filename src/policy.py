"""The MutatingAdmissionPolicy: what its templates are given, and the namespaces it serves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import labels
import podrules
import wishes

FOLDER = "admission-policy"
VERSIONS = ("v1", "v1beta1")
"""Of the API, the better one first."""
LIFECYCLE_LABEL = "istio-integrator.charmhub.io/lifecycle"
SERVED_BY = "istio-integrator.charmhub.io/served-by"
"""On a namespace that several integrators could serve: the one that does."""

Namespaces = tuple[tuple[str, tuple[dict[str, Any], ...]], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in admission-policy."""

    version: str
    """Of the policy API: `v1` or `v1beta1`."""
    name: str
    model: str
    application: str
    revision: str
    seen: str
    """For the annotation by which it is read back."""
    lifecycle_in_model: bool
    included_pods: tuple[labels.Requirement, ...]
    excluded_pods: tuple[labels.Requirement, ...]
    inject_label: tuple[str, str]
    hold_application: bool
    native: bool
    pod_labels: tuple[podrules.Entries, ...]
    pod_labels_keys: tuple[str, ...]
    pod_annotations: tuple[podrules.Entries, ...]
    pod_annotations_keys: tuple[str, ...]
    excluded_outbound_ports: tuple[podrules.Ports, ...]
    image_registries: tuple[podrules.Registries, ...]
    namespace_selectors: Namespaces


def name(owner: str) -> str:
    """Name an application's policy."""
    return f"istio-integrator.{owner}".lower()


def context(
    wanted: wishes.Wishes, namespaces: Namespaces, *, owner: str, version: str = "v1"
) -> Context:
    """Put wishes into the words of the policy's templates."""
    rules = wanted.rules
    return Context(
        version=version,
        name=name(owner),
        model=wanted.model,
        application=wanted.application,
        revision=wanted.settings()["revision"],
        seen=wanted.seen.text(),
        lifecycle_in_model=wanted.lifecycle_in_model,
        included_pods=labels.parse(wanted.included_pods),
        excluded_pods=labels.parse(wanted.excluded_pods),
        inject_label=wanted.seen.inject_label,
        hold_application=wanted.hold_application,
        native=wanted.seen.native,
        pod_labels=rules.labels,
        pod_labels_keys=_keys(rules.labels),
        pod_annotations=rules.annotations,
        pod_annotations_keys=_keys(rules.annotations),
        excluded_outbound_ports=rules.excluded_outbound_ports,
        image_registries=rules.image_registries,
        namespace_selectors=namespaces,
    )


def _keys(rules: Iterable[podrules.Entries]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for rule in rules for key, _ in rule.add))


def namespace_selectors(
    model: str, groups: Iterable[str], *, istiod_namespace: str = "", owner: str = ""
) -> Namespaces:
    """Write the selector of each kind of namespace; no namespace has two of them.

    Args:
        model: Always served: its pods' place in the mesh is decided here.
        groups: The kinds to serve, as the option `lifecycle-namespaces` names them.
        istiod_namespace: Never served.
        owner: Ours; a namespace that another integrator serves is left to it.
    """
    by_name = "kubernetes.io/metadata.name"
    never = sorted({model, "kube-system", istiod_namespace} - {""})
    elsewhere = (
        _expression(by_name, "NotIn", *never),
        _expression("controller.juju.is/id", "DoesNotExist"),
    )
    labelled = ("enabled",) if "labelled" in groups else ()
    profiles = (
        _expression("app.kubernetes.io/part-of", "In", "kubeflow-profile"),
        _expression(LIFECYCLE_LABEL, "NotIn", "disabled", *labelled),
    )
    kinds = {
        "profiles": (*profiles, *elsewhere),
        "labelled": (_expression(LIFECYCLE_LABEL, "In", "enabled"), *elsewhere),
    }
    chosen = tuple(
        (f"{kind}{suffix}", (*kinds[kind], *served))
        for kind in kinds
        if kind in groups
        for suffix, served in _served(owner)
    )
    return (("model", (_expression(by_name, "In", model),)), *chosen)


def _served(owner: str) -> Iterable[tuple[str, tuple[dict[str, Any], ...]]]:
    """Write that nobody serves a namespace yet, and that we do: a selector has no `or`."""
    if not owner:
        return (("", ()),)
    return (
        ("", (_expression(SERVED_BY, "DoesNotExist"),)),
        ("-ours", (_expression(SERVED_BY, "In", owner),)),
    )


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return labels.Requirement(key, operator, values).as_expression()
