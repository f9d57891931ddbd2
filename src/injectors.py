"""Which sidecar injectors a cluster has, read from their webhook configurations; pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import cluster

INJECTION_LABEL = "istio-injection"
REVISION_LABEL = "istio.io/rev"
TAG_LABEL = "istio.io/tag"
INJECT_LABEL = "sidecar.istio.io/inject"
DATAPLANE_LABEL = "istio.io/dataplane-mode"

_WEBHOOK_SUFFIX = "sidecar-injector.istio.io"
_DEACTIVATED = "istio.io/deactivated"


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Injector:
    """One name under which an istiod can be asked for sidecars."""

    namespace: str
    """Of the istiod behind it; empty where it is addressed by URL."""
    revision: str
    """A revision or a tag; what a namespace names."""
    istiod_revision: str
    """The revision itself, which names the ConfigMap; differs from `revision` for a tag."""
    is_default: bool
    service: str = ""
    url: str = ""
    configuration: str = ""


@dataclasses.dataclass(frozen=True)
class NoInjector:
    """There is nothing to join yet."""

    message: str


@dataclasses.dataclass(frozen=True)
class Refusal:
    """The operator must choose, or chose something that is not there."""

    message: str


def find(configurations: Iterable[cluster.Object]) -> list[Injector]:
    """List the injectors among all webhook configurations of a cluster."""
    found: set[Injector] = set()
    for configuration in configurations:
        hooks = [hook for hook in cluster.items(configuration, "webhooks") if _is_injector(hook)]
        if hooks:
            found.update(_injectors(configuration, hooks))
    return sorted(found)


def _is_injector(hook: cluster.Object) -> bool:
    selected = _selected(hook, "namespaceSelector") | _selected(hook, "objectSelector")
    return hook.get("name", "").endswith(_WEBHOOK_SUFFIX) and _DEACTIVATED not in selected


def _injectors(configuration: cluster.Object, hooks: list[Any]) -> Iterable[Injector]:
    marks = cluster.at(configuration, "metadata", "labels")
    name = configuration["metadata"]["name"]
    is_default = any(
        "enabled" in _selected(hook, "namespaceSelector").get(INJECTION_LABEL, ())
        for hook in hooks
    )
    revisions: set[str] = set()
    for hook in hooks:
        revisions |= _selected(hook, "namespaceSelector").get(REVISION_LABEL, set())
    client = cluster.at(hooks[0], "clientConfig")
    service = cluster.at(client, "service")
    for revision in revisions or {"default"}:
        yield Injector(
            namespace=service.get("namespace", ""),
            revision=revision,
            istiod_revision=marks.get(REVISION_LABEL) or revision,
            is_default=is_default,
            service=service.get("name", ""),
            url=client.get("url", ""),
            configuration=name,
        )


def _selected(hook: cluster.Object, which: str) -> dict[str, set[str]]:
    """The values that a selector asks for, by label; exclusions are left out."""
    selector = cluster.at(hook, which)
    wanted = {key: {str(value)} for key, value in cluster.at(selector, "matchLabels").items()}
    for expression in cluster.items(selector, "matchExpressions"):
        if expression["operator"] == "In":
            wanted.setdefault(expression["key"], set()).update(expression["values"])
    return wanted


def choose(
    injectors: list[Injector], *, namespace: str, revision: str, application: str
) -> Injector | NoInjector | Refusal:
    """Decide which injector serves the model.

    Args:
        injectors: All there are.
        namespace: Where istiod must run; empty for anywhere.
        revision: The revision or tag that the operator wants; empty for no wish.
        application: For the command that a refusal names.
    """
    if not injectors:
        return NoInjector("waiting for istiod: the cluster has no sidecar injector")
    here = [one for one in injectors if namespace in ("", one.namespace)]
    if not here:
        places = _listed(one.namespace or one.url for one in injectors)
        return NoInjector(f"waiting for an istiod in {namespace}; there is one in {places}")
    if revision:
        named = [one for one in here if revision in (one.revision, one.istiod_revision)]
        # A tag shares its revision with the revision's own injector: the exact name wins.
        wanted = [one for one in named if one.revision == revision] or named
        if not wanted:
            known = _listed(one.revision for one in here)
            return Refusal(f"revision {revision} does not exist; there is {known}")
    else:
        wanted = [one for one in here if one.is_default] or here
    if len(wanted) == 1:
        return wanted[0]
    return _ambiguous(wanted, application)


def _ambiguous(wanted: list[Injector], application: str) -> Refusal:
    namespaces = {one.namespace for one in wanted}
    revisions = {one.revision for one in wanted}
    if len(revisions) == 1 and len(namespaces) > 1:
        option, values = "istiod-namespace", namespaces
    else:
        option, values = "revision", revisions
    named = _listed(f"{one.revision} ({one.namespace or one.url})" for one in wanted)
    example = min(values)
    return Refusal(f"several Istios: {named}; run: juju config {application} {option}={example}")


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))
