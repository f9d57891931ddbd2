"""Which sidecar injectors a cluster has, read from their webhook configurations; pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from integrator_contract import names, selectors
from istio_integrator import texts
from istio_integrator.config import config
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Template

MEMBERSHIP_LABELS = (names.INJECTION, names.REVISION)
"""The labels by which a namespace joins a mesh or stays out of it."""

_WEBHOOK_SUFFIX = "sidecar-injector.istio.io"
USUAL_NAMESPACE = "istio-system"
"""The default namespace of Istio's charts and of istioctl."""


class InjectionWebhook(NamedTuple):
    """The selectors of a webhook, which both must match."""

    namespaces: selectors.Selector
    pods: selectors.Selector


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Injector:
    """A revision or tag by which namespaces get sidecars from an istiod."""

    namespace: str
    """The namespace of its istiod; empty if the webhook has a URL."""
    revision: str
    """A revision or a tag, as namespaces name it in a label."""
    istiod_revision: str = ""
    """The revision in the ConfigMap's name; differs from `revision` for a tag."""
    is_default: bool
    service: str = ""
    url: str = ""
    """The address of a webhook without a Service."""
    webhook_configuration: str = ""
    installed_in: str = ""
    """The namespace of Istio's own objects in this cluster; empty: not known."""
    hooks: tuple[InjectionWebhook, ...] = dataclasses.field(default=(), compare=False)
    """The selectors of its webhooks."""

    @property
    def istiod(self) -> tuple[str, ...]:
        """The istiod and its revision, which a tag has in common with its revision."""
        return self.namespace, self.service, self.url, self.istiod_revision


def pick_mesh_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a namespace that decide whether it joins a mesh."""
    return {key: labels[key] for key in MEMBERSHIP_LABELS if key in labels}


def gives_sidecars(labels: Mapping[str, str]) -> bool:
    """Tell whether a namespace's labels request sidecars."""
    return labels.get(names.INJECTION, labels.get(names.REVISION)) not in (None, "disabled")


def find_injecting(present: Iterable[Injector], labels: Mapping[str, str]) -> Injector | None:
    """Find the injector that the API server calls for a pod without labels of its own."""
    # The API server calls webhook configurations in the order of their names.
    for injector in sorted(present, key=lambda one: one.webhook_configuration):
        for namespaces, pods in injector.hooks:
            if all(each.matches(labels) for each in namespaces) and all(
                each.matches({}) for each in pods
            ):
                return injector
    return None


def list_injectors(configurations: Iterable[cluster.Object]) -> list[Injector]:
    """List the injectors among all webhook configurations of a cluster."""
    return sorted(set(cluster.read_each(configurations, _read_injectors)))


def _read_injectors(configuration: cluster.Object) -> list[Injector]:
    hooks: list[InjectionWebhook] = []
    client: cluster.Object = {}
    for each in cluster.parts(configuration, "webhooks"):
        hook = InjectionWebhook(
            read_requirements(cluster.at(each, "namespaceSelector")),
            read_requirements(cluster.at(each, "objectSelector")),
        )
        is_switched_off = any(_list_values(part, names.DEACTIVATED) for part in hook)
        if each.get("name", "").endswith(_WEBHOOK_SUFFIX) and not is_switched_off:
            client = client or cluster.at(each, "clientConfig")
            hooks.append(hook)
    if not hooks:
        return []
    name = configuration["metadata"]["name"]
    marked = cluster.at(configuration, "metadata", "labels").get(names.REVISION)
    service = cluster.at(client, "service")
    namespace = service.get("namespace", "")
    revisions = {one for hook in hooks for one in _list_values(hook.namespaces, names.REVISION)}
    return [
        Injector(
            namespace=namespace,
            revision=revision,
            istiod_revision=marked or revision,
            is_default=any(
                "enabled" in _list_values(hook.namespaces, names.INJECTION) for hook in hooks
            ),
            service=service.get("name", ""),
            url=client.get("url", ""),
            webhook_configuration=name,
            hooks=tuple(hooks),
            installed_in=namespace or _read_named_namespace(name, revision, marked),
        )
        for revision in revisions or {"default"}
    ]


def _list_values(found: selectors.Selector, label: str) -> set[str]:
    """Return the values of a label that a selector includes."""
    return {
        value
        for each in found
        if each.key == label and each.operator == "In"
        for value in each.values
    }


def _read_named_namespace(configuration: str, *revisions: str | None) -> str:
    """Read the namespace of an installation from the name of its webhook configuration.

    Istio's charts name it `istio-sidecar-injector[-REVISION][-NAMESPACE]`, and that of a tag
    `istio-revision-tag-TAG[-NAMESPACE]`. They leave out the namespace istio-system
    (istio-discovery, mutatingwebhook.yaml and revision-tags-mwc.yaml).
    """
    named = "|".join(re.escape(each) for each in revisions if each)
    pattern = rf"istio-(?:sidecar-injector|revision-tag)(?:-(?:{named}))?(?:-(.+))?"
    match = re.fullmatch(pattern, configuration)
    return (match[1] or USUAL_NAMESPACE) if match else ""


def read_requirements(selector: cluster.Object) -> selectors.Selector:
    """Read a LabelSelector; an empty one has no requirements and selects all objects."""
    equal = cluster.at(selector, "matchLabels").items()
    return (
        *(selectors.Requirement(key, "In", (str(value),)) for key, value in equal),
        *(
            selectors.Requirement(
                str(each["key"]), str(each["operator"]), tuple(map(str, each.get("values") or ()))
            )
            for each in cluster.parts(selector, "matchExpressions")
        ),
    )


def choose_injector(
    injectors: list[Injector], options: config.Config, *, application: str, hint: str = ""
) -> Injector | Message:
    """Decide which injector serves the model, by the options `istiod-namespace` and `revision`.

    The option also gives the namespace of an injector whose configuration does not show it.
    `hint` is the namespace from a relation to a charmed Istio, used while the option is empty.
    """
    namespace, revision = options.istiod_namespace, options.revision
    if not injectors:
        return Template.INJECTOR_ABSENT()
    place = namespace or hint
    here = [one for one in injectors if place in ("", one.installed_in)]
    if not here and namespace:
        here = [
            dataclasses.replace(one, installed_in=namespace)
            for one in injectors
            if not one.installed_in
        ]
    if not here:
        places = texts.join_names(one.installed_in or one.url for one in injectors)
        return Template.ISTIOD_ELSEWHERE(namespace=place, places=places)
    if revision:
        named = [one for one in here if revision in (one.revision, one.istiod_revision)]
        # A tag shares its revision with the revision's own injector: the exact name wins.
        candidates = [one for one in named if one.revision == revision] or named
        if not candidates:
            known = texts.join_names(one.revision for one in here)
            return Template.REVISION_ABSENT(revision=revision, revisions=known)
    else:
        candidates = [one for one in here if one.is_default] or here
    if len(candidates) == 1:
        return candidates[0]
    return _report_ambiguity(candidates, application)


def _report_ambiguity(candidates: list[Injector], application: str) -> Message:
    named = texts.join_names(
        f"{one.revision} ({one.namespace or one.url or one.webhook_configuration})"
        for one in candidates
    )
    for option, values in (
        ("revision", {one.revision for one in candidates}),
        ("istiod-namespace", {one.installed_in for one in candidates}),
    ):
        if len(values) > 1:
            return Template.SEVERAL_ISTIOS(
                application=application,
                option=option,
                example=min(values - {""}),
                injectors=named,
            )
    # Istio's own names never clash, so one of them was left by a removed installation.
    surplus = max(one.webhook_configuration for one in candidates)
    return Template.INJECTORS_CLASH(surplus=surplus, injectors=named)
