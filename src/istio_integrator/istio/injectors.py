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
from istio_integrator.messages import Message, Said

MEMBERSHIP_LABELS = (names.INJECTION, names.REVISION)
"""The labels by which a namespace joins a mesh or stays outside."""

_WEBHOOK_SUFFIX = "sidecar-injector.istio.io"
USUAL_NAMESPACE = "istio-system"
"""Where Istio is, and istioctl looks for one, unless somebody says otherwise."""


class Hook(NamedTuple):
    """The selectors of a webhook; both have to match."""

    namespaces: selectors.Selector
    pods: selectors.Selector


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Injector:
    """One name under which an istiod can be asked for sidecars."""

    namespace: str
    """Of the istiod behind it; empty where it is addressed by URL."""
    revision: str
    """A revision or a tag; what a namespace names."""
    istiod_revision: str = ""
    """The revision itself, which names the ConfigMap; differs from `revision` for a tag."""
    is_default: bool
    service: str = ""
    url: str = ""
    """Its address where there is no Service."""
    webhook_configuration: str = ""
    installed_in: str = ""
    """Where Istio's own objects are in this cluster; empty: not known."""
    hooks: tuple[Hook, ...] = dataclasses.field(default=(), compare=False)
    """Which pods it is asked about."""

    @property
    def istiod(self) -> tuple[str, ...]:
        """The istiod and its revision, to which a tag leads, too."""
        return self.namespace, self.service, self.url, self.istiod_revision


def mesh_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return those of a namespace's labels that say whether it joins a mesh."""
    return {key: labels[key] for key in MEMBERSHIP_LABELS if key in labels}


def gives_sidecars(labels: Mapping[str, str]) -> bool:
    """Tell whether a namespace's labels ask an injector for sidecars."""
    return labels.get(names.INJECTION, labels.get(names.REVISION)) not in (None, "disabled")


def injecting(present: Iterable[Injector], labels: Mapping[str, str]) -> Injector | None:
    """Find the injector that the API server calls for a pod that asks for nothing itself."""
    # The API server calls webhook configurations in the order of their names.
    for injector in sorted(present, key=lambda one: one.webhook_configuration):
        for namespaces, pods in injector.hooks:
            if all(each.matches(labels) for each in namespaces) and all(
                each.matches({}) for each in pods
            ):
                return injector
    return None


def find(configurations: Iterable[cluster.Object]) -> list[Injector]:
    """List the injectors among all webhook configurations of a cluster."""
    return sorted(set(cluster.read_each(configurations, _read)))


def _read(configuration: cluster.Object) -> list[Injector]:
    hooks: list[Hook] = []
    client: cluster.Object = {}
    for each in cluster.parts(configuration, "webhooks"):
        hook = Hook(
            requirements(cluster.at(each, "namespaceSelector")),
            requirements(cluster.at(each, "objectSelector")),
        )
        is_switched_off = any(_asked(part, names.DEACTIVATED) for part in hook)
        if each.get("name", "").endswith(_WEBHOOK_SUFFIX) and not is_switched_off:
            client = client or cluster.at(each, "clientConfig")
            hooks.append(hook)
    if not hooks:
        return []
    name = configuration["metadata"]["name"]
    marked = cluster.at(configuration, "metadata", "labels").get(names.REVISION)
    service = cluster.at(client, "service")
    namespace = service.get("namespace", "")
    revisions = {one for hook in hooks for one in _asked(hook.namespaces, names.REVISION)}
    return [
        Injector(
            namespace=namespace,
            revision=revision,
            istiod_revision=marked or revision,
            is_default=any(
                "enabled" in _asked(hook.namespaces, names.INJECTION) for hook in hooks
            ),
            service=service.get("name", ""),
            url=client.get("url", ""),
            webhook_configuration=name,
            hooks=tuple(hooks),
            installed_in=namespace or _named_namespace(name, revision, marked),
        )
        for revision in revisions or {"default"}
    ]


def _asked(found: selectors.Selector, label: str) -> set[str]:
    """Return the values that a selector asks for; exclusions are left out."""
    return {
        value
        for each in found
        if each.key == label and each.operator == "In"
        for value in each.values
    }


def _named_namespace(configuration: str, *revisions: str | None) -> str:
    """Read the namespace of an installation from the name of its webhook configuration.

    Istio's charts name it `istio-sidecar-injector[-REVISION][-NAMESPACE]`, and that of a tag
    `istio-revision-tag-TAG[-NAMESPACE]`, without the namespace where it is istio-system
    (istio-discovery, mutatingwebhook.yaml and revision-tags-mwc.yaml).
    """
    named = "|".join(re.escape(each) for each in revisions if each)
    pattern = rf"istio-(?:sidecar-injector|revision-tag)(?:-(?:{named}))?(?:-(.+))?"
    match = re.fullmatch(pattern, configuration)
    return (match[1] or USUAL_NAMESPACE) if match else ""


def requirements(selector: cluster.Object) -> selectors.Selector:
    """Read a selector of the API; an empty one has no requirements and selects all."""
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


def choose(
    injectors: list[Injector], options: config.Config, *, application: str, hint: str = ""
) -> Injector | Message:
    """Decide which injector serves the model, by the options `istiod-namespace` and `revision`.

    Of an injector whose configuration does not tell its namespace, the option tells it. `hint` is
    the namespace that a charmed Istio says, where the option says nothing.
    """
    namespace, revision = options.istiod_namespace, options.revision
    if not injectors:
        return Said.INJECTOR_ABSENT()
    place = namespace or hint
    here = [one for one in injectors if place in ("", one.installed_in)]
    if not here and namespace:
        here = [
            dataclasses.replace(one, installed_in=namespace)
            for one in injectors
            if not one.installed_in
        ]
    if not here:
        places = texts.listed(one.installed_in or one.url for one in injectors)
        return Said.ISTIOD_ELSEWHERE(namespace=place, places=places)
    if revision:
        named = [one for one in here if revision in (one.revision, one.istiod_revision)]
        # A tag shares its revision with the revision's own injector: the exact name wins.
        candidates = [one for one in named if one.revision == revision] or named
        if not candidates:
            known = texts.listed(one.revision for one in here)
            return Said.REVISION_ABSENT(revision=revision, revisions=known)
    else:
        candidates = [one for one in here if one.is_default] or here
    if len(candidates) == 1:
        return candidates[0]
    return _ambiguous(candidates, application)


def _ambiguous(candidates: list[Injector], application: str) -> Message:
    named = texts.listed(
        f"{one.revision} ({one.namespace or one.url or one.webhook_configuration})"
        for one in candidates
    )
    for option, values in (
        ("revision", {one.revision for one in candidates}),
        ("istiod-namespace", {one.installed_in for one in candidates}),
    ):
        if len(values) > 1:
            return Said.SEVERAL_ISTIOS(
                application=application,
                option=option,
                example=min(values - {""}),
                injectors=named,
            )
    # Istio's own names never clash so; one is an installation's that has gone.
    surplus = max(one.webhook_configuration for one in candidates)
    return Said.INJECTORS_CLASH(surplus=surplus, injectors=named)
