"""The labels by which the model's namespace joins a mesh."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping

import msgspec

from integrator_contract import names, pods
from istio_integrator import error_messages
from istio_integrator.istio import ambient, injectors, installation, meshconfig
from istio_integrator.kube import cluster, errors, owners
from istio_integrator.messages import Message, Template
from istio_integrator.situation.situation import Situation

LABELS = (*injectors.MEMBERSHIP_LABELS, names.DATAPLANE_MODE)
"""Labels by which a namespace joins a mesh; their earlier values are recorded."""
_RESTORES = 3
"""Removals of the labels within an hour that are reported."""
_HOUR = 3600


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelChange:
    """Change of the namespace, and its message."""

    labels: Mapping[str, str | None] = dataclasses.field(default_factory=dict[str, "str | None"])
    """Merge patch of the labels; empty: no change."""
    record: owners.UndoRecord | None = None
    """The record after the change."""
    joined: bool = False
    """Whether new pods join after the change."""
    data_plane: pods.DataPlane = "sidecar"
    """How they join after the change."""
    problem: Message | None = None
    """The problem that keeps the namespace out of the mesh."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelNamespace:
    """The model's namespace, with the wanted membership and the state of the mesh."""

    name: str
    labels: Mapping[str, str]
    record: owners.UndoRecord | None
    """The record in its annotation."""
    owner: str
    """This application."""
    now: int = 0
    """The time in seconds since the epoch."""
    membership: pods.Membership = "namespace"
    member_labels: Mapping[str, str] | None = None
    """The labels of a member; None without an Istio."""
    data_plane: pods.DataPlane = "sidecar"
    """How pods should join the mesh."""
    missing: Message | None = None
    """The message about a prerequisite that the cluster lacks."""
    awaited: str = ""
    """The event that has to happen before the namespace joins; empty once it has happened."""
    mesh: installation.Mesh | None = None
    """The Istio to join."""

    @property
    def undo_patch(self) -> dict[str, str | None]:
        """The patch that restores the labels that still have this charm's values.

        Labels that are not the mesh's are ignored, even if they are in the record.
        """
        record = self.record or owners.UndoRecord(self.owner, {}, {})
        return {
            key: record.before[key]
            for key in LABELS
            if key in record.before and self.labels.get(key) == record.values.get(key)
        }

    @property
    def labels_after_undo(self) -> dict[str, str]:
        """The labels after `undo_patch`."""
        after = {**self.labels, **self.undo_patch}
        return {key: value for key, value in after.items() if value is not None}

    def decide(self) -> LabelChange:
        """Decide the labels and their record."""
        decided = (
            self._decide_joining() if self.membership == "namespace" else self._decide_leaving()
        )
        after = {**self.labels, **decided.labels}
        is_led = decided.joined if self.membership == "selected" else ambient.is_labelled(after)
        kept = decided.record
        if kept is not None:
            # Drop labels that have their earlier values and that the charm no longer sets.
            before = {
                key: value
                for key, value in kept.before.items()
                if key in kept.values or after.get(key) != value
            }
            kept = msgspec.structs.replace(kept, before=before)
        plane = self.data_plane if is_led else "sidecar"
        problem = decided.problem or (self._report_removals(kept) if decided.joined else None)
        return dataclasses.replace(decided, record=kept, data_plane=plane, problem=problem)

    def _report_removals(self, record: owners.UndoRecord | None) -> Message | None:
        restored = record.restored if record else ()
        if record is None or sum(0 <= self.now - at < _HOUR for at in restored) < _RESTORES:
            return None
        return Template.LABEL_REMOVED_AGAIN(
            namespace=self.name, labels=_format_labels(record.values)
        )

    def _decide_joining(self) -> LabelChange:
        record, wanted = self.record, self.member_labels
        present = self._find_mesh_labels(self.labels)
        ours = dict(record.values) if record else {}
        foreign = {key: value for key, value in present.items() if ours.get(key) != value}
        obstacle = self._find_obstacle(self.labels, foreign)
        if obstacle or self.missing:
            joined = not obstacle and bool(present) and present in (ours, wanted)
            return LabelChange(record=record, joined=joined, problem=obstacle or self.missing)
        is_member = self.mesh is not None and self.mesh.has_member(self.labels)
        by_others = self.data_plane == "sidecar" and bool(foreign) and is_member
        if by_others or wanted is None or present == wanted:
            joined = by_others or (bool(present) and present == (wanted or ours))
            return LabelChange(record=record, joined=joined)
        if others := {key: value for key, value in foreign.items() if wanted.get(key) != value}:
            match = "" if self.data_plane == "ambient" else "or set revision to match; "
            problem = Template.NAMESPACE_OF_OTHER_MESH(
                namespace=self.name,
                labels=_format_labels(others),
                command=_make_removal_command(self.name, others),
                more=f"{match}this charm would set {_format_labels(wanted)}",
            )
            return LabelChange(record=record, problem=problem)
        if self.awaited:
            return LabelChange(record=record, problem=Template.NOT_IN_MESH_YET(event=self.awaited))
        before = dict(record.before) if record else {}
        for key in {*present, *wanted}:
            before.setdefault(key, foreign.get(key))
        restored = record.restored if record else ()
        if ours == wanted:
            restored = (*restored, self.now)[-_RESTORES:]
        return LabelChange(
            labels={**{key: None for key in present if key not in wanted}, **wanted},
            record=owners.UndoRecord(self.owner, dict(wanted), before, restored),
            joined=True,
        )

    def _decide_leaving(self) -> LabelChange:
        """Decide the labels of a namespace that this charm does not join to the mesh.

        Selected pods join one by one, which works only in a namespace without mesh labels.
        """
        record = owners.UndoRecord(self.owner, {}, {}) if self.record else None
        if self.membership == "none":
            return LabelChange(labels=self.undo_patch, record=record)
        present = self._find_mesh_labels(self.labels_after_undo)
        problem = self._find_obstacle(self.labels_after_undo, present)
        if present and not problem:
            command = _make_removal_command(self.name, present)
            problem = Template.EVERY_POD_JOINS(
                namespace=self.name, labels=_format_labels(present), command=command
            )
        if self.missing and not problem:
            return LabelChange(record=self.record, problem=self.missing)
        return LabelChange(
            labels=self.undo_patch, record=record, joined=not problem, problem=problem
        )

    def _find_mesh_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels that decide how the namespace's pods join a mesh.

        In ambient mode, `istio-injection=disabled` is allowed: it only disables sidecars.
        """
        found = injectors.pick_mesh_labels(labels)
        if self.data_plane == "ambient" and found.get(names.INJECTION) == "disabled":
            del found[names.INJECTION]
        return {**found, **(names.AMBIENT if ambient.is_labelled(labels) else {})}

    def _find_obstacle(
        self, labels: Mapping[str, str], foreign: Mapping[str, str]
    ) -> Message | None:
        key = names.DATAPLANE_MODE
        if self.data_plane == "ambient":
            said = Template.NAMESPACE_NOT_IN_AMBIENT
            is_so = labels.get(key, "ambient") != "ambient"
        elif key in foreign:
            said, is_so = Template.NAMESPACE_IN_AMBIENT, True
        else:
            said, key = Template.INJECTION_DISABLED, names.INJECTION
            is_so = foreign.get(key) == "disabled"
        if not is_so:
            return None
        shown = f"{key}={labels[key]}"
        return said(
            namespace=self.name, labels=shown, command=_make_removal_command(self.name, [key])
        )


def _format_labels(labels: Mapping[str, str]) -> str:
    return " and ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _make_removal_command(namespace: str, labels: Iterable[str]) -> str:
    return f"kubectl label ns {namespace} {' '.join(f'{key}-' for key in sorted(labels))}"


def read_record(namespace: cluster.Object) -> owners.UndoRecord | None:
    """Read the record in the namespace's annotation."""
    return owners.UndoRecord.read(
        cluster.at(namespace, "metadata", "annotations").get(names.MEMBERSHIP)
    )


def read(situation: Situation, namespace: cluster.Object) -> ModelNamespace:
    """Read labels and record of the model's namespace; the record of a removed owner is taken."""
    record, owner = read_record(namespace), situation.manifests.owner
    if record and record.owner != owner and owners.is_gone(situation.cluster, record.owner):
        record = msgspec.structs.replace(record, owner=owner)
    return ModelNamespace(
        name=situation.model,
        labels=cluster.at(namespace, "metadata", "labels"),
        record=record,
        owner=owner,
        now=int(time.time()),
    )


def decide(
    situation: Situation,
    mesh: installation.Mesh | None,
    namespace: cluster.Object,
    *,
    are_pods_prepared: bool = True,
) -> LabelChange:
    """Decide the membership of the model's namespace by the options and the cluster."""
    membership, present = situation.config.membership, read(situation, namespace)
    # Labels that this event restores are gone at the next event.
    left = present.labels if membership == "namespace" else present.labels_after_undo
    data_plane, missing = _find_data_plane(situation, mesh, left)
    member_labels = mesh.namespace_labels if mesh else None
    if mesh and data_plane == "ambient":
        member_labels = names.AMBIENT
    awaited = ""
    if mesh is None or not mesh.alive:
        awaited = "istiod has injected a dry-run pod"
    elif data_plane == "sidecar" and not are_pods_prepared:
        # Juju's modeloperator would get a sidecar.
        awaited = "the admission webhook prepares new pods"
    if mesh and membership != "none":
        set_here = (member_labels or {}) if membership == "namespace" else {}
        # istiod's injector ignores discoverySelectors: the model's pods would get sidecars that
        # wait forever for the root certificate.
        after, selectors = {**present.labels, **set_here}, mesh.settings.discovery_selectors
        label = meshconfig.find_lacking_labels(selectors, after)
        if label and not missing:
            missing = Template.MODEL_IGNORED_BY_ISTIOD(
                istiod=mesh.name, namespace=situation.model, label=label
            )
    return dataclasses.replace(
        present,
        membership=membership,
        member_labels=member_labels,
        data_plane=data_plane,
        missing=missing,
        awaited=awaited,
        mesh=mesh,
    ).decide()


def _find_data_plane(
    situation: Situation, mesh: installation.Mesh | None, labels: Mapping[str, str | None]
) -> tuple[pods.DataPlane, Message | None]:
    """Return how pods should join the mesh, and what the cluster lacks for it."""
    mode = situation.config.mesh_mode
    if not ambient.is_chosen(mode, labels):
        return "sidecar", None
    missing: Message | None = None
    try:
        if lack := ambient.find_missing_part(situation.cluster, mesh) if mesh else "":
            about = {"mode": mode, "lack": lack, "application": situation.application}
            missing = Template.AMBIENT_LACKS(namespace=situation.model, **about)
    except errors.ForbiddenError as error:
        # A namespace in ambient mode stays in it. Without the check no namespace joins it.
        if not ambient.is_labelled(labels):
            missing = error_messages.explain_error(error, application=situation.application)
    return "ambient", missing
