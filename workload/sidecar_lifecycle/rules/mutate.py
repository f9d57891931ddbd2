"""What a new pod gets: a pure function from a pod and settings to a JSON patch with reasons.

The policy of the charm (`templates/admission-policy`) says the same in CEL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sidecar_lifecycle import names

from . import creation, hold, selectors

PROBE = f"{names.PREFIX}probe"
"""Label of the charm's dry-run pods that learn which backend answers."""
SETTINGS = f"{names.PREFIX}settings"
"""Annotation by which probes get back which settings are in effect."""
WEBHOOK_COMPONENT = "admission-webhook"

PROXY_CONFIG = "proxy.istio.io/config"
NATIVE_SIDECAR = "sidecar.istio.io/nativeSidecar"
EXCLUDED_OUTBOUND_PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts"
MIRROR = "kubernetes.io/config.mirror"

_SKIP_MESSAGES = {
    "HasProxy": "the pod already has an istio-proxy",
    "MirrorPod": "it mirrors a static pod of a kubelet",
    "PodSaysItself": "the pod says itself what it wants",
    "HostNetwork": "pods on the node's network never get a sidecar",
    "NotInjected": "the pod is labelled to get no sidecar",
    "NativeSidecar": "a native sidecar starts before the application anyway",
    "ConfigSaysItself": f"{PROXY_CONFIG} sets {hold.HOLD} itself",
    "ConfigNotMergeable": f"{PROXY_CONFIG} is no mapping that begins plainly enough to add to",
    "ConfigTooLong": f"{PROXY_CONFIG} is longer than {hold.LONGEST} characters",
}


def mutate(
    pod: creation.Pod, settings: creation.Settings, kind: creation.NamespaceKind = "model"
) -> creation.Mutation:
    """Decide what a pod gets at its creation.

    Args:
        pod: As it is sent, before any injector.
        settings: What is wanted.
        kind: Of the pod's namespace: exclusion and membership are matters of the model only.
    """
    draft = _Draft(pod)
    if untouchable := _untouchable(pod):
        draft.skip("all", untouchable)
        return draft.result()
    ours = kind == "model" and is_ours(draft.labels, settings)
    if kind == "model":
        _membership(draft, settings, ours=ours)
        if PROBE in draft.labels:
            draft.annotations[SETTINGS] = settings.revision
    if not ours and (settings.lifecycle_in_model or kind != "model"):
        for change in _CHANGES:
            change(draft, settings)
    return draft.result()


def is_ours(labels: Mapping[str, str], settings: creation.Settings) -> bool:
    """Tell whether a pod of the model is Juju's or this application's own machinery."""
    return (
        labels.get("operator.juju.is/name") == "modeloperator"
        or labels.get("juju-modeloperator") == "modeloperator"
        or labels.get("app.kubernetes.io/name") == settings.application
        or labels.get(names.COMPONENT) == WEBHOOK_COMPONENT
        or PROBE in labels
    )


def _untouchable(pod: creation.Pod) -> str:
    annotations = pod.metadata.annotations or {}
    if MIRROR in annotations:
        return "MirrorPod"
    containers = (*pod.spec.containers, *(pod.spec.initContainers or ()))
    if names.SIDECAR_STATUS in annotations or any(c.name == names.PROXY for c in containers):
        return "HasProxy"
    return ""


class _Draft:
    """A pod on its way through the changes."""

    def __init__(self, pod: creation.Pod) -> None:
        self.pod = pod
        # Selectors see the pod as it was sent, whatever is added.
        self.sent = pod.metadata.labels or {}
        self.labels = dict(self.sent)
        self.annotations = dict(pod.metadata.annotations or {})
        self.images: list[tuple[str, str]] = []
        self.applied: list[str] = []
        self.skipped: list[creation.Skip] = []

    def skip(self, change: str, reason: str) -> None:
        self.skipped.append(creation.Skip(change, reason, _SKIP_MESSAGES[reason]))

    @property
    def outside(self) -> str:
        """Why the pod will get no sidecar; empty as far as one can tell that it might."""
        if self.pod.spec.hostNetwork:
            return "HostNetwork"
        inject = self.labels.get(names.INJECT, self.annotations.get(names.INJECT))
        return "NotInjected" if inject == "false" else ""

    def result(self) -> creation.Mutation:
        if self.applied:
            before = [word for word in self.annotations.get(names.APPLIED, "").split(",") if word]
            added = [word for word in self.applied if word not in before]
            self.annotations[names.APPLIED] = ",".join([*before, *added])
        metadata = self.pod.metadata
        patch = [
            *_map_patch("/metadata/annotations", metadata.annotations, self.annotations),
            *_map_patch("/metadata/labels", metadata.labels, self.labels),
            *({"op": "replace", "path": path, "value": image} for path, image in self.images),
        ]
        return creation.Mutation(patch, tuple(self.applied), tuple(self.skipped))


def _map_patch(
    path: str, before: Mapping[str, str] | None, after: Mapping[str, str]
) -> list[dict[str, Any]]:
    if before is None:
        return [{"op": "add", "path": path, "value": dict(after)}] if after else []
    return [
        {
            "op": "replace" if key in before else "add",
            "path": f"{path}/{key.replace('~', '~0').replace('/', '~1')}",
            "value": value,
        }
        for key, value in after.items()
        if before.get(key) != value
    ]


def _membership(draft: _Draft, settings: creation.Settings, *, ours: bool) -> None:
    if ours or settings.excluded_pods.matches(draft.labels):
        if names.INJECT in draft.labels or _asks_to_be_in(draft):
            draft.skip("excluded", "PodSaysItself")
            return
        draft.labels[names.INJECT] = "false"
        draft.applied.append("excluded")
    elif settings.membership == "selected" and settings.included_pods.matches(draft.labels):
        if draft.pod.spec.hostNetwork:
            draft.skip("inject", "HostNetwork")
            return
        annotated = names.INJECT in draft.annotations
        if names.INJECT in draft.labels or names.REVISION in draft.labels or annotated:
            draft.skip("inject", "PodSaysItself")
            return
        key, value = settings.inject_label
        draft.labels[key] = value
        draft.applied.append("inject")


def _asks_to_be_in(draft: _Draft) -> bool:
    return names.REVISION in draft.labels or draft.annotations.get(names.INJECT) == "true"


def _selected(pods: selectors.Selector | None, draft: _Draft) -> bool:
    return pods is None or pods.matches(draft.sent)


def _annotations(draft: _Draft, settings: creation.Settings) -> None:
    wanted = _wanted(draft, settings.pod_annotations)
    _add(draft, "annotations", wanted, draft.annotations)


def _labels(draft: _Draft, settings: creation.Settings) -> None:
    wanted = _wanted(draft, settings.pod_labels)
    _add(draft, "labels", wanted, draft.labels)


def _wanted(draft: _Draft, rules: tuple[creation.Entries, ...]) -> dict[str, str]:
    wanted: dict[str, str] = {}
    for rule in rules:
        if _selected(rule.pods, draft):
            wanted = {**rule.add, **wanted}
    return wanted


def _add(draft: _Draft, change: str, wanted: dict[str, str], entries: dict[str, str]) -> None:
    missing = {key: value for key, value in wanted.items() if key not in entries}
    if missing:
        entries.update(missing)
        draft.applied.append(change)
    elif wanted:
        draft.skip(change, "PodSaysItself")


_PORT = re.compile(r"[^, \t\r\n]+")


def _ports(draft: _Draft, settings: creation.Settings) -> None:
    rules = settings.excluded_outbound_ports
    wanted = [str(p) for rule in rules if _selected(rule.pods, draft) for p in rule.ports]
    if not wanted:
        return
    if draft.outside:
        draft.skip("ports", draft.outside)
        return
    value = draft.annotations.get(EXCLUDED_OUTBOUND_PORTS, "")
    present = _PORT.findall(value)
    missing = [port for port in dict.fromkeys(wanted) if port not in present]
    if not missing:
        draft.skip("ports", "PodSaysItself")
        return
    kept = [value] if present else []
    draft.annotations[EXCLUDED_OUTBOUND_PORTS] = ",".join([*kept, *missing])
    draft.applied.append("ports")


def _native(draft: _Draft, settings: creation.Settings) -> None:
    if not settings.native or draft.pod.spec.restartPolicy in (None, "", "Always"):
        return
    if draft.outside:
        draft.skip("native", draft.outside)
    elif NATIVE_SIDECAR in draft.annotations:
        draft.skip("native", "PodSaysItself")
    else:
        draft.annotations[NATIVE_SIDECAR] = "true"
        draft.applied.append("native")


def _hold(draft: _Draft, settings: creation.Settings) -> None:
    if not settings.hold_application:
        return
    if draft.outside:
        draft.skip("hold", draft.outside)
        return
    if draft.annotations.get(NATIVE_SIDECAR) == "true":
        draft.skip("hold", "NativeSidecar")
        return
    merge = hold.merge(draft.annotations.get(PROXY_CONFIG))
    if merge.value is None:
        draft.skip("hold", merge.reason)
        return
    draft.annotations[PROXY_CONFIG] = merge.value
    draft.applied.append("hold")


_REGISTRY = re.compile(r"^(?:localhost|[^/]*[.:][^/]*)/")


def full_image(image: str) -> str:
    """Write an image's name with the registry that a container runtime would ask."""
    if _REGISTRY.search(image):
        return image
    return f"docker.io/{image}" if "/" in image else f"docker.io/library/{image}"


def _images(draft: _Draft, settings: creation.Settings) -> None:
    prefixes = [
        pair
        for rule in settings.image_registries
        if rule.pods.matches(draft.sent)
        for pair in rule.prefixes
    ]
    if not prefixes:
        return
    spec = draft.pod.spec
    lists = (("initContainers", spec.initContainers or ()), ("containers", spec.containers))
    for field, containers in lists:
        for index, container in enumerate(containers):
            image = moved_image(container.image or "", prefixes)
            if image:
                draft.images.append((f"/spec/{field}/{index}/image", image))
    if draft.images:
        draft.applied.append("images")


def moved_image(image: str, prefixes: list[tuple[str, str]]) -> str:
    """Return an image's new name by the first prefix that fits, empty where none does."""
    full = full_image(image)
    for old, new in prefixes:
        if image and full.startswith(f"{old}/"):
            return f"{new}{full[len(old) :]}"
    return ""


_CHANGES: tuple[Callable[[_Draft, creation.Settings], None], ...] = (
    _annotations,
    _ports,
    _native,
    _hold,
    _images,
    _labels,
)
