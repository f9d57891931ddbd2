"""What becomes of the labels by which the model's namespace joins a mesh; pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import msgspec

from integrator_contract import names, pods
from istio_integrator.istio import ambient, injectors
from istio_integrator.kube import records
from istio_integrator.messages import Message, Said

LABELS = (*injectors.MEMBERSHIP_LABELS, names.DATAPLANE_MODE)
"""By which a namespace joins a mesh, and which are recorded."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """The model's namespace as it is."""

    name: str
    labels: Mapping[str, str]
    record: records.Record | None
    """What its annotation says."""
    owner: str
    """This application."""

    def leave(self) -> dict[str, str | None]:
        """Return the patch by which the labels that are still as we set them are given back.

        A record of labels that are not the mesh's is none of ours.
        """
        record = self.record
        if record is None:
            return {}
        return {
            key: record.before[key]
            for key in LABELS
            if key in record.before and self.labels.get(key) == record.values.get(key)
        }

    def left(self) -> dict[str, str]:
        """Return the labels without those that are given back."""
        after = {**self.labels, **self.leave()}
        return {key: value for key, value in after.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the options, the mesh and the cluster make of the namespace."""

    membership: pods.Membership = "namespace"
    labels: Mapping[str, str] | None
    """The labels of a member; None while no Istio is there to say."""
    data_plane: pods.DataPlane = "sidecar"
    """What is to take pods into the mesh."""
    missing: Message | None = None
    """What the cluster lacks for it."""
    awaited: str = ""
    """The event before which nobody new joins; empty once it has happened."""
    is_member: Callable[[Mapping[str, str]], bool] = lambda _: False
    """Tells whether the injectors of the cluster inject pods of a namespace with such labels by
    the Istio to join, whatever the labels are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do with the namespace, and what to say."""

    labels: Mapping[str, str | None] = dataclasses.field(default_factory=dict[str, "str | None"])
    """Merge patch of the labels; empty: leave them."""
    record: records.Record | None = None
    """The record as it should be afterwards."""
    joined: bool = False
    """Whether new pods are asked to join, afterwards."""
    data_plane: pods.DataPlane = "sidecar"
    """What takes them into the mesh, afterwards."""
    problem: Message | None = None
    """What keeps the namespace out of the mesh."""
    log: str = ""
    """What happened that somebody may wonder about."""


def decide(place: Place, wanted: Wanted) -> Decision:
    """Decide about the labels of the namespace and their record."""
    if place.record is not None and place.record.owner != place.owner:
        decided = Decision(record=place.record, problem=rival(place.name, place.record.owner))
    elif wanted.membership == "namespace":
        decided = _join(place, wanted)
    else:
        decided = _stay_apart(place, wanted)
    after = {**place.labels, **decided.labels}
    is_led = decided.joined if wanted.membership == "selected" else ambient.is_labelled(after)
    kept = decided.record
    if kept is not None and kept.owner == place.owner:
        # Labels that are as they were, and that we set no more, are forgotten.
        before = {
            key: value
            for key, value in kept.before.items()
            if key in kept.values or after.get(key) != value
        }
        kept = msgspec.structs.replace(kept, before=before)
    plane = wanted.data_plane if is_led else "sidecar"
    return dataclasses.replace(decided, record=kept, data_plane=plane)


def _join(place: Place, wanted: Wanted) -> Decision:
    """Decide about a namespace that joins the mesh with all of its pods."""
    record, member_labels, data_plane = place.record, wanted.labels, wanted.data_plane
    present = _present(place.labels, data_plane)
    ours = dict(record.values) if record else {}
    foreign = {key: value for key, value in present.items() if ours.get(key) != value}
    obstacle = _obstacle(place.name, place.labels, foreign, data_plane)
    if obstacle or wanted.missing:
        joined = not obstacle and bool(present) and present in (ours, member_labels)
        return Decision(record=record, joined=joined, problem=obstacle or wanted.missing)
    by_others = data_plane == "sidecar" and bool(foreign) and wanted.is_member(place.labels)
    if by_others or member_labels is None or present == member_labels:
        joined = by_others or (bool(present) and present == (member_labels or ours))
        return Decision(record=record, joined=joined)
    others = {key: foreign[key] for key in foreign if member_labels.get(key) != foreign[key]}
    if others:
        superfluous = _superfluous(place.labels, others, wanted.is_member)
        match = "" if data_plane == "ambient" else "or set revision to match; "
        problem = Said.NAMESPACE_OF_OTHER_MESH(
            namespace=place.name,
            labels=_text(superfluous),
            command=_removal(place.name, superfluous),
            more=f"{match}this charm would set {_text(member_labels)}",
        )
        return Decision(record=record, problem=problem)
    if wanted.awaited:
        return Decision(record=record, problem=Said.NOT_IN_MESH_YET(event=wanted.awaited))
    before = dict(record.before) if record else {}
    for key in {*present, *member_labels}:
        before.setdefault(key, foreign.get(key))
    undone = f"{_text(member_labels)} had been removed from namespace {place.name}: set again"
    return Decision(
        labels={**{key: None for key in present if key not in member_labels}, **member_labels},
        record=records.Record(place.owner, member_labels, before),
        joined=True,
        log=undone if ours and not present else "",
    )


def _stay_apart(place: Place, wanted: Wanted) -> Decision:
    """Decide about a namespace that should have no label of the mesh through us.

    Selected pods join one by one, which they only can where the namespace says nothing.
    """
    left = Decision(
        labels=place.leave(),
        record=records.Record(place.owner, {}, {}) if place.record else None,
    )
    if wanted.membership == "none":
        return left
    after = place.left()
    present = _present(after, wanted.data_plane)
    problem = _obstacle(place.name, after, present, wanted.data_plane)
    if present and not problem:
        problem = Said.EVERY_POD_JOINS(
            namespace=place.name, labels=_text(present), command=_removal(place.name, present)
        )
    if wanted.missing and not problem:
        return Decision(record=place.record, problem=wanted.missing)
    return dataclasses.replace(left, joined=not problem, problem=problem)


def rival(namespace: str, owner: str) -> Message:
    """Say that another integrator serves the model."""
    return Said.MODEL_TAKEN(namespace=namespace, owner=owner)


def _present(labels: Mapping[str, str], data_plane: pods.DataPlane) -> dict[str, str]:
    """Return the labels that say how the namespace's pods are in a mesh.

    What is in ambient mode may say to the injector that it is to give no sidecars.
    """
    found = injectors.mesh_labels(labels)
    if data_plane == "ambient" and found.get(names.INJECTION) == "disabled":
        del found[names.INJECTION]
    return {**found, **(names.AMBIENT if ambient.is_labelled(labels) else {})}


def _obstacle(
    namespace: str,
    labels: Mapping[str, str],
    foreign: Mapping[str, str],
    data_plane: pods.DataPlane,
) -> Message | None:
    """Name what keeps every pod out, whatever Istio there is."""
    if names.CONTROLLER_MODEL in labels:
        return Said.CONTROLLER_MODEL()
    if data_plane == "ambient":
        mode = labels.get(names.DATAPLANE_MODE, "ambient")
        if mode == "ambient":
            return None
        return Said.NAMESPACE_NOT_IN_AMBIENT(
            namespace=namespace,
            command=_removal(namespace, [names.DATAPLANE_MODE]),
            labels=f"{names.DATAPLANE_MODE}={mode}",
        )
    if names.DATAPLANE_MODE in foreign:
        return Said.NAMESPACE_IN_AMBIENT(
            namespace=namespace, command=_removal(namespace, [names.DATAPLANE_MODE])
        )
    if foreign.get(names.INJECTION) == "disabled":
        return Said.INJECTION_DISABLED(
            namespace=namespace,
            labels=f"{names.INJECTION}=disabled",
            command=_removal(namespace, [names.INJECTION]),
        )
    return None


def _superfluous(
    labels: Mapping[str, str],
    others: Mapping[str, str],
    is_member: Callable[[Mapping[str, str]], bool],
) -> Mapping[str, str]:
    """Find the one label without which the namespace is a member; all of them where none is."""
    for key in others:
        if is_member({name: labels[name] for name in labels if name != key}):
            return {key: others[key]}
    return others


def _text(labels: Mapping[str, str]) -> str:
    return " and ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _removal(namespace: str, labels: Iterable[str]) -> str:
    return f"kubectl label ns {namespace} {' '.join(f'{key}-' for key in sorted(labels))}"
