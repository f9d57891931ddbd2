"""What becomes of the labels by which the model's namespace joins a mesh; pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from integrator_contract import names, pods
from istio_integrator.istio import ambient, injectors
from istio_integrator.kube import records
from istio_integrator.messages import Message, Said

LABELS = (*injectors.MEMBERSHIP_LABELS, names.DATAPLANE_MODE)
"""By which a namespace joins a mesh, and which are recorded."""


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


def decide(
    *,
    namespace: str,
    labels: Mapping[str, str],
    record: records.Record | None,
    owner: str,
    member_labels: Mapping[str, str] | None,
    alive: bool,
    are_pods_prepared: bool = True,
    is_member: Callable[[Mapping[str, str]], bool],
    data_plane: pods.DataPlane = "sidecar",
    missing: Message | None = None,
) -> Decision:
    """Decide about a namespace that joins the mesh with all of its pods; `completed` ends it.

    Args:
        namespace: Its name, for messages.
        labels: All labels that it has.
        record: What its annotation says.
        owner: This application.
        member_labels: The labels of a member; None while no Istio is there to say.
        alive: Whether the injector answers, without which nobody new joins.
        are_pods_prepared: Whether the admission webhook prepares new pods. Without it Juju's
            modeloperator would get a sidecar.
        is_member: Tells whether the injectors of the cluster inject pods of a namespace with such
            labels by the Istio to join, whatever the labels are.
        data_plane: What is to take pods into the mesh.
        missing: What the cluster lacks for it.
    """
    present = _present(labels, data_plane)
    if record is not None and record.owner != owner:
        return Decision(record=record, problem=rival(namespace, record.owner))
    ours = dict(record.values) if record else {}
    foreign = {key: value for key, value in present.items() if ours.get(key) != value}
    obstacle = _obstacle(namespace, labels, foreign, present, data_plane)
    if obstacle or missing:
        joined = not obstacle and bool(present) and present in (ours, member_labels)
        return Decision(record=record, joined=joined, problem=obstacle or missing)
    by_others = data_plane == "sidecar" and bool(foreign) and is_member(labels)
    if by_others or member_labels is None or present == member_labels:
        joined = by_others or (bool(present) and present == (member_labels or ours))
        return Decision(record=record, joined=joined)
    others = {key: foreign[key] for key in foreign if member_labels.get(key) != foreign[key]}
    if others:
        superfluous = _superfluous(labels, others, is_member)
        match = "" if data_plane == "ambient" else "or set revision to match; "
        return Decision(
            record=record,
            problem=Said.NAMESPACE_OF_OTHER_MESH(
                namespace=namespace,
                labels=_text(superfluous),
                command=_removal(namespace, superfluous),
                more=f"{match}this charm would set {_text(member_labels)}",
            ),
        )
    awaited = "" if alive else "istiod has injected a dry-run pod"
    if alive and data_plane == "sidecar" and not are_pods_prepared:
        awaited = "the admission webhook prepares new pods"
    if awaited:
        return Decision(record=record, problem=Said.NOT_IN_MESH_YET(event=awaited))
    before = dict(record.before) if record else {}
    for key in {*present, *member_labels}:
        before.setdefault(key, foreign.get(key))
    patch: dict[str, str | None] = {key: None for key in present if key not in member_labels}
    restored = bool(ours) and not present
    return Decision(
        labels={**patch, **member_labels},
        record=records.Record(owner, member_labels, before),
        joined=True,
        log=f"{_text(member_labels)} had been removed from namespace {namespace}: it is set again"
        if restored
        else "",
    )


def decide_apart(
    *,
    namespace: str,
    labels: Mapping[str, str],
    record: records.Record | None,
    owner: str,
    membership: str,
    data_plane: pods.DataPlane = "sidecar",
    missing: Message | None = None,
) -> Decision:
    """Decide about a namespace that should have no label of the mesh through us.

    Args:
        namespace: Its name, for messages.
        labels: All labels that it has.
        record: What its annotation says.
        owner: This application.
        membership: `selected`, where pods join one by one, which they only can where the
            namespace says nothing; or `none`.
        data_plane: What is to take selected pods into the mesh.
        missing: What the cluster lacks for it.
    """
    if record is not None and record.owner != owner:
        return Decision(record=record, problem=rival(namespace, record.owner))
    patch = leave(labels, record) if record else {}
    given_back = records.Record(owner, {}, {}) if record else None
    after = {key: value for key, value in {**labels, **patch}.items() if value is not None}
    if membership != "selected":
        there = data_plane if ambient.is_labelled(after) else "sidecar"
        return Decision(labels=patch, record=given_back, data_plane=there)
    present = _present(after, data_plane)
    obstacle = _obstacle(namespace, after, present, present, data_plane)
    if present and not obstacle:
        obstacle = Said.EVERY_POD_JOINS(
            namespace=namespace, labels=_text(present), command=_removal(namespace, present)
        )
    if missing and not obstacle:
        return Decision(record=record, problem=missing)
    return Decision(
        labels=patch,
        record=given_back,
        joined=not obstacle,
        problem=obstacle,
        data_plane="sidecar" if obstacle else data_plane,
    )


def completed(
    decided: Decision, labels: Mapping[str, str], data_plane: pods.DataPlane, *, owner: str
) -> Decision:
    """Complete what `decide` says by what its labels make of the namespace."""
    after = {**labels, **decided.labels}
    is_ambient = data_plane == "ambient" and ambient.is_labelled(after)
    kept = decided.record
    if kept is not None and kept.owner == owner:
        kept = _without_undone(kept, after)
    return dataclasses.replace(
        decided, record=kept, data_plane="ambient" if is_ambient else "sidecar"
    )


def leave(labels: Mapping[str, str], record: records.Record) -> dict[str, str | None]:
    """Return the patch by which the labels that are still as we set them become what they were.

    A record of labels that are not the mesh's is none of ours.
    """
    return {
        key: record.before[key]
        for key in LABELS
        if key in record.before and labels.get(key) == record.values.get(key)
    }


def _without_undone(record: records.Record, labels: Mapping[str, str | None]) -> records.Record:
    """Forget the labels that are as they were, and that we set no more."""
    before = {
        key: value
        for key, value in record.before.items()
        if key in record.values or labels.get(key) != value
    }
    return dataclasses.replace(record, before=before)


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
    present: Mapping[str, str],
    data_plane: pods.DataPlane,
) -> Message | None:
    if names.CONTROLLER_MODEL in labels:
        return Said.CONTROLLER_MODEL()
    if data_plane == "ambient":
        return _obstacle_to_ambient(namespace, labels)
    if names.DATAPLANE_MODE in foreign:
        return Said.NAMESPACE_IN_AMBIENT(
            namespace=namespace, command=_removal(namespace, [names.DATAPLANE_MODE])
        )
    if present.get(names.INJECTION) == "disabled":
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


def _obstacle_to_ambient(namespace: str, labels: Mapping[str, str]) -> Message | None:
    mode = labels.get(names.DATAPLANE_MODE, "ambient")
    if mode == "ambient":
        return None
    return Said.NAMESPACE_NOT_IN_AMBIENT(
        namespace=namespace,
        command=_removal(namespace, [names.DATAPLANE_MODE]),
        labels=f"{names.DATAPLANE_MODE}={mode}",
    )


def _text(labels: Mapping[str, str]) -> str:
    return " and ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _removal(namespace: str, labels: Iterable[str]) -> str:
    return f"kubectl label ns {namespace} {' '.join(f'{key}-' for key in sorted(labels))}"
