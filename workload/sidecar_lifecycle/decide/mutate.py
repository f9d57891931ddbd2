"""Mutation of a new pod: a pure function from a pod and settings to a JSON patch with reasons.

The API server calls the webhook again after istiod, so a pod may come with the proxy that istiod
has just added. In such a pod only the order of the containers changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from integrator_contract import names, namespaces, pods, selectors, service
from integrator_contract.reasons import ADMISSION, Reason
from sidecar_lifecycle.model import types

from . import eligible, first_container, proxy_config, startable

MOST_ANNOTATION_BYTES = 256 * 1024
"""Bytes of all annotations with their keys: the API server rejects an object with more."""
MOST_ANNOTATIONS = 1000
"""A pod with more annotations gets none of this charm's."""


class Skip(NamedTuple):
    """A change in the settings that is not made to this pod."""

    change: str
    reason: Reason
    message: str


class Mutation(NamedTuple):
    """The changes of one pod."""

    patch: list[dict[str, Any]]
    """A JSON patch with only the changes; may be empty."""
    applied: tuple[str, ...]
    """The changes made, as named in `CHANGES`."""
    skipped: tuple[Skip, ...]


def mutate(pod: types.Pod, settings: pods.Settings, kind: namespaces.Kind = "model") -> Mutation:
    """Decide the changes of a new pod; only the model's pods get exclusion and membership."""
    in_ambient = kind == "model" and settings.data_plane == "ambient"
    draft = _Draft(pod, settings, in_ambient=in_ambient)
    if names.MIRROR in draft.annotations or names.MESH_PROBE in draft.labels:
        is_mirror = names.MIRROR in draft.annotations
        draft.skip("all", Reason.MIRROR_POD if is_mirror else Reason.MESH_PROBE)
        return draft.make_mutation()
    is_ours = names.PROBE in draft.labels or names.is_machinery(draft.labels, settings.application)
    ours = kind == "model" and is_ours
    is_served = not ours and (settings.lifecycle_in_model or kind != "model")
    if _has_own_proxy(pod.spec):
        draft.skip("all", Reason.HAS_PROXY)
        if is_served:
            _order_containers(draft)
        return draft.make_mutation()
    if kind == "model":
        _decide_membership(draft, ours=ours)
        if names.PROBE in draft.labels:
            draft.annotations[names.SETTINGS] = settings.digest
    if is_served:
        draft.add_entries("pod-traffic", draft.labels, _label_training_pod(draft))
        for name, change in _ANNOTATING.items():
            draft.add_entries(name, draft.annotations, change(draft))
        draft.add_entries("images", draft.images, _move_images(draft))
        draft.add_entries(
            "labels", draft.labels, _find_missing_entries(draft, settings.pod_labels, draft.labels)
        )
    return draft.make_mutation()


def _has_own_proxy(spec: types.PodSpec) -> bool:
    """Tell whether a pod has a complete proxy, or only a proxy container, as a gateway has."""
    containers = (*spec.containers, *spec.initContainers)
    has_whole = any(
        each.name == names.PROXY and each.image != names.AUTO_IMAGE for each in containers
    )
    return has_whole or all(each.name == names.PROXY for each in spec.containers)


_Added: TypeAlias = Mapping[str, str] | Reason
"""The entries that a change adds to a pod, or the reason why it is skipped."""


class _Draft:
    """A pod during its mutation."""

    def __init__(self, pod: types.Pod, settings: pods.Settings, *, in_ambient: bool) -> None:
        self.pod = pod
        self.settings = settings
        self.in_ambient = in_ambient
        # Selectors match the pod as it was sent, without added labels.
        self.sent = pod.metadata.labels
        self.labels = dict(self.sent)
        self.inability = eligible.find_inability(pod.spec)
        self.addressed = first_container.find_addressed(pod)
        self.annotations = dict(pod.metadata.annotations)
        self.images: dict[str, str] = {}
        """New images by their JSON paths."""
        self.first = 0
        """The index of the container to move to the front."""
        self.applied: list[str] = []
        self.skipped: list[Skip] = []

    def add_entries(self, change: str, entries: dict[str, str], added: _Added) -> None:
        """Add the entries of a change to the pod's labels, annotations or images."""
        if change in self.settings.left_out:
            added = Reason.FORBIDDEN_BY_POLICY
        if isinstance(added, Reason):
            self.skip(change, added)
        elif added:
            entries.update(added)
            self.applied.append(change)

    def skip(self, change: str, reason: Reason) -> None:
        self.skipped.append(Skip(change, reason, ADMISSION[reason]))

    @property
    def templates(self) -> tuple[str, ...]:
        """The pod's injection templates; `sidecar` is Istio's default.

        Of Istio's templates only `sidecar` supports native sidecars (istio
        manifests/charts/istio-control/istio-discovery/files).
        """
        return service.split_list(self.annotations.get(names.TEMPLATES, "sidecar"))

    @property
    def is_native(self) -> bool:
        """Whether the pod asks for a native sidecar and gets one."""
        return self.annotations.get(names.NATIVE_SIDECAR) == "true" and "sidecar" in self.templates

    @property
    def outside_reason(self) -> Reason | None:
        """The reason why the pod will get no sidecar; None if it may get one."""
        if self.inability is not None:
            return self.inability.reason
        if self.in_ambient:
            return Reason.AMBIENT
        inject = self.labels.get(names.INJECT, self.annotations.get(names.INJECT))
        return Reason.NOT_INJECTED if inject == "false" else None

    def make_mutation(self) -> Mutation:
        metadata = self.pod.metadata
        if self.applied:
            before = filter(None, self.annotations.get(names.APPLIED, "").split(","))
            self.annotations[names.APPLIED] = ",".join(dict.fromkeys([*before, *self.applied]))
            if not _is_accepted(self.annotations, metadata.annotations):
                self._leave_annotations()
        patch = [
            *_make_patch("/metadata/annotations", metadata.annotations, self.annotations),
            *_make_patch("/metadata/labels", metadata.labels, self.labels),
            *(
                {"op": "replace", "path": path, "value": image}
                for path, image in self.images.items()
            ),
        ]
        if self.first:
            source = f"/spec/containers/{self.first}"
            patch.append({"op": "move", "from": source, "path": "/spec/containers/0"})
        return Mutation(patch, tuple(self.applied), tuple(self.skipped))

    def _leave_annotations(self) -> None:
        """Remove the added annotations: the API server would reject the pod with them."""
        self.annotations = dict(self.pod.metadata.annotations)
        for word in _ANNOTATING:
            if word in self.applied:
                self.applied.remove(word)
                self.skip(word, Reason.ANNOTATIONS_FULL)


def _is_accepted(annotations: Mapping[str, str], sent: Mapping[str, str]) -> bool:
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    return len(sent) <= MOST_ANNOTATIONS and size <= MOST_ANNOTATION_BYTES


def _make_patch(
    path: str, before: Mapping[str, str], after: Mapping[str, str]
) -> list[dict[str, Any]]:
    # An absent map has to be added as a whole; an empty one may be.
    if not before:
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


def _decide_membership(draft: _Draft, *, ours: bool) -> None:
    settings = draft.settings
    obstacle = Reason.POD_SAYS_ITSELF if _has_own_membership_label(draft) else None
    is_outside = ours or draft.inability is not None
    if is_outside or selectors.matches(settings.excluded, draft.labels):
        change, labels = "excluded", settings.outside_label
    elif settings.membership == "selected" and selectors.matches(settings.included, draft.labels):
        change, labels = "inject", settings.inject_label
        if settings.outside_label.keys() <= draft.annotations.keys():
            obstacle = Reason.POD_SAYS_ITSELF
    else:
        return
    draft.add_entries(change, draft.labels, obstacle or labels)


def _has_own_membership_label(draft: _Draft) -> bool:
    """Tell whether the pod already has the label or annotation, or asks for a sidecar."""
    asked = (draft.labels.get(names.INJECT), draft.annotations.get(names.INJECT))
    says = draft.settings.outside_label.keys() <= draft.labels.keys()
    return says or names.REVISION in draft.labels or "true" in asked


def _find_missing_entries(
    draft: _Draft, rules: tuple[pods.Entries, ...], entries: Mapping[str, str]
) -> _Added:
    wanted: dict[str, str] = {}
    for rule in rules:
        if rule.selects(draft.sent):
            wanted = {**rule.add, **wanted}
    missing = {key: value for key, value in wanted.items() if key not in entries}
    return Reason.POD_SAYS_ITSELF if wanted and not missing else missing


_PORT = re.compile(r"[^, \t\r\n]+")
_EMPTY_PLACE = re.compile(r"^[ \t\r\n]*,|,[ \t\r\n]*,|,[ \t\r\n]*\Z")


def _exclude_ports(draft: _Draft) -> _Added:
    rules = draft.settings.excluded_outbound_ports
    wanted = [str(p) for rule in rules if rule.selects(draft.sent) for p in rule.ports]
    if not wanted:
        return {}
    if draft.outside_reason:
        return draft.outside_reason
    value = draft.annotations.get(names.EXCLUDED_OUTBOUND_PORTS, "")
    if _EMPTY_PLACE.search(value):
        return Reason.PORTS_NOT_MERGEABLE
    present = _PORT.findall(value)
    missing = [port for port in dict.fromkeys(wanted) if port not in present]
    if not missing:
        return Reason.POD_SAYS_ITSELF
    kept = [value] if present else []
    return {names.EXCLUDED_OUTBOUND_PORTS: ",".join([*kept, *missing])}


def _request_native_sidecar(draft: _Draft) -> _Added:
    spec = draft.pod.spec
    completes = spec.restartPolicy not in ("", "Always")
    # Before a classic proxy runs, the call is plain text, which the head's namespace may deny.
    waits = any(each.name == names.RAY_WAIT for each in spec.initContainers)
    if not draft.settings.native or not (
        completes or waits or startable.find_blocking(spec.initContainers, draft.annotations)
    ):
        return {}
    if draft.outside_reason:
        return draft.outside_reason
    if names.NATIVE_SIDECAR in draft.annotations:
        return Reason.POD_SAYS_ITSELF
    # A further template may change istio-proxy among the containers, where a native one is not.
    is_alone = draft.templates == ("sidecar",)
    return {names.NATIVE_SIDECAR: "true"} if is_alone else Reason.OTHER_TEMPLATE


def _request_hold(draft: _Draft) -> _Added:
    if not draft.settings.hold_application:
        return {}
    if draft.outside_reason:
        return draft.outside_reason
    if draft.is_native:
        return Reason.NATIVE_SIDECAR
    return (
        Reason.FIRST_CONTAINER
        if draft.addressed
        else _insert_setting(draft, proxy_config.HOLD, setting=True)
    )


def _disable_hold(draft: _Draft) -> _Added:
    """Disable the mesh's hold, which would put the proxy before the addressed container."""
    is_wanted = draft.settings.mesh_holds and draft.addressed
    if not is_wanted or draft.outside_reason or draft.is_native:
        return {}
    return _insert_setting(draft, proxy_config.HOLD, setting=False)


def _insert_setting(draft: _Draft, key: str, setting: object) -> _Added:
    merged = proxy_config.insert_setting(draft.annotations.get(names.PROXY_CONFIG), key, setting)
    return merged if isinstance(merged, Reason) else {names.PROXY_CONFIG: merged}


def _label_training_pod(draft: _Draft) -> _Added:
    """Label a pod of a training job. An EnvoyFilter makes it call other pods by mutual TLS."""
    if not draft.settings.pod_traffic or names.TRAINING_JOBS.keys().isdisjoint(draft.sent):
        return {}
    if names.POD_TRAFFIC in draft.labels:
        return Reason.POD_SAYS_ITSELF
    return draft.outside_reason or {names.POD_TRAFFIC: names.MUTUAL_TLS}


def _disable_idle_timeout(draft: _Draft) -> _Added:
    """Keep idle connections between the pods of a job, which Envoy closes after an hour.

    istiod uses the variable for every TCP filter (istio pilot/pkg/networking/core).
    """
    is_wanted = draft.labels.get(names.POD_TRAFFIC) == names.MUTUAL_TLS
    if not draft.settings.pod_traffic or not is_wanted:
        return {}
    endless = {"ISTIO_META_IDLE_TIMEOUT": "0s"}
    return draft.outside_reason or _insert_setting(draft, proxy_config.METADATA, endless)


def _order_containers(draft: _Draft) -> None:
    """Move the addressed container to the front."""
    containers = [each.name for each in draft.pod.spec.containers]
    if draft.addressed and draft.addressed != containers[0]:
        draft.first = containers.index(draft.addressed)
        draft.applied.append("order")


def complete_image(image: str) -> str:
    """Return an image's name with the registry that a container runtime would use."""
    first, slash, _ = image.partition("/")
    if not slash:
        return f"docker.io/library/{image}"
    is_registry = first == "localhost" or "." in first or ":" in first
    return image if is_registry else f"docker.io/{image}"


def _move_images(draft: _Draft) -> dict[str, str]:
    rules = [each for each in draft.settings.image_registries if each.selects(draft.sent)]
    prefixes = [pair for rule in rules for pair in rule.pairs]
    spec = draft.pod.spec
    lists = (("initContainers", spec.initContainers), ("containers", spec.containers))
    found = {
        f"/spec/{field}/{index}/image": move_image(container.image or "", prefixes)
        for field, containers in lists
        for index, container in enumerate(containers)
        if container.image != names.AUTO_IMAGE
    }
    return {path: image for path, image in found.items() if image}


def move_image(image: str, prefixes: list[tuple[str, str]]) -> str:
    """Return an image's new name by the first matching prefix; empty if none matches."""
    full = complete_image(image)
    for old, new in prefixes:
        if image and full.startswith(f"{old}/"):
            return f"{new}{full[len(old) :]}"
    return ""


_ANNOTATING: Mapping[str, Callable[[_Draft], _Added]] = {
    "annotations": lambda draft: _find_missing_entries(
        draft, draft.settings.pod_annotations, draft.annotations
    ),
    "ports": _exclude_ports,
    "native": _request_native_sidecar,
    "hold": _request_hold,
    "no-hold": _disable_hold,
    "idle-timeout": _disable_idle_timeout,
}
CHANGES = ("excluded", "inject", "pod-traffic", *_ANNOTATING, "images", "labels", "order")
"""The possible changes of a new pod, with the names and order of its annotation."""
