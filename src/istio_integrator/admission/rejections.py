"""Rejections by other teams' admission control, found by the workload's dry runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from integrator_contract import names, refusals, rejections
from istio_integrator import error_messages, texts
from istio_integrator.istio import injectors
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Template
from istio_integrator.situation.situation import Situation

_OPTIONS: Mapping[str, str] = {
    "hold": "hold-application=false",
    "native": "job-sidecars=classic",
    "ports": "excluded-outbound-ports=",
    "annotations": "pod-annotations=",
    "labels": "pod-labels=",
    "images": "image-registries=",
    "pod-traffic": "pod-networks=none",
    "idle-timeout": "pod-networks=none",
}
"""Options that turn off a change of admission; the other changes keep pods outside of the mesh."""

_KNOWN_WEBHOOKS = (names.OF_ISTIO.rstrip("/"), names.PREFIX.rstrip("/"))
"""Suffixes of the names of Istio's and this charm's webhooks."""


def read(situation: Situation) -> rejections.Rejections:
    """Read the rejections of the workload's last dry runs; empty before the first."""
    name = rejections.name_config_map(situation.application)
    found = situation.manifests.find_own(cluster.CONFIG_MAP, name)
    text = str(cluster.at(found, "data").get(rejections.KEY) or "{}")
    try:
        return msgspec.json.decode(text, type=rejections.Rejections)
    except (ValueError, RecursionError):
        return rejections.Rejections()


def report(found: rejections.Rejections, situation: Situation) -> Iterable[Message]:
    """Return messages about changes that are left out and sidecars, and who rejects them."""
    for change, refusal in sorted(found.changes.items()):
        command = error_messages.make_author_command(refusal, situation.model)
        if option := _OPTIONS.get(change):
            command = f"juju config {situation.application} {option}"
        is_unnamed = refusal.author == refusals.SOME_WEBHOOK
        author = (is_unnamed and _name_webhooks(situation)) or refusal.author
        more = refusal.words
        if author != refusals.KUBE_APISERVER:
            more = f"{more}; or exempt the namespace {situation.model} from it"
        yield Template.CHANGE_FORBIDDEN(author=author, change=change, command=command, more=more)
    for workload, refusal in sorted(found.sidecars.items()):
        yield Template.SIDECAR_REJECTED(
            author=refusal.author,
            workload=workload,
            namespace=situation.model,
            words=refusal.words,
        )


def _name_webhooks(situation: Situation) -> str:
    """Return the mutating webhooks of other teams that the model's new pods may reach."""
    namespace = situation.cluster.get(cluster.NAMESPACE, situation.model)
    labels = cluster.at(namespace, "metadata", "labels")

    def read(configuration: cluster.Object) -> list[str]:
        return [
            each["name"]
            for each in cluster.parts(configuration, "webhooks")
            if not each["name"].endswith(_KNOWN_WEBHOOKS)
            and any({"pods", "*", "*/*"} & {*rule["resources"]} for rule in each["rules"])
            and all(
                one.matches(labels)
                for one in injectors.read_requirements(each["namespaceSelector"])
            )
        ]

    found = cluster.read_each(situation.cluster.list(cluster.MUTATING_WEBHOOK), read)
    return f"webhook {texts.join_names(found)}" if found else ""
