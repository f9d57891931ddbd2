"""The model namespace's place in the mesh: one label, what it was before, and who set it."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import ops

import cluster
import component
import errors
import injectors
import manifests
import owners

logger = logging.getLogger(__name__)

RECORD = f"{manifests.PREFIX}membership"
"""The annotation in which the namespace remembers what was set on it, and by whom."""

_MESH_LABELS = (injectors.INJECTION_LABEL, injectors.REVISION_LABEL)
_CONTROLLER_LABEL = "controller.juju.is/id"
"""Juju labels only a controller's own model with it; other models have an annotation."""
_CONTROLLER = "a controller model never joins a mesh: deploy into another model"


@dataclasses.dataclass(frozen=True)
class Record:
    """What an integrator did to a namespace."""

    owner: str
    """The application that did it, as its ownership label names it."""
    labels: Mapping[str, str]
    """What it set."""
    before: Mapping[str, str | None]
    """What each label that it changed was before; None for absent."""

    @classmethod
    def read(cls, annotations: Mapping[str, str]) -> Record | None:
        """Read the record of a namespace; None where there is none or it is unreadable."""
        try:
            value = json.loads(annotations[RECORD])
            return cls(str(value["owner"]), dict(value["set"]), dict(value["before"]))
        except (KeyError, TypeError, ValueError):
            return None

    def written(self) -> str:
        """Write the record as an annotation's value."""
        value = {"owner": self.owner, "set": dict(self.labels), "before": dict(self.before)}
        return json.dumps(value, sort_keys=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do with the namespace, and what to say."""

    labels: Mapping[str, str | None] = dataclasses.field(default_factory=dict[str, "str | None"])
    """Merge patch of the labels; empty: leave them."""
    record: Record | None = None
    """The record as it should be afterwards."""
    joined: bool = False
    """Whether new pods are asked to join, afterwards."""
    blocked: str = ""
    """What the operator must do."""
    waiting: str = ""
    """What the charm waits for."""
    log: str = ""
    """What happened that somebody may wonder about."""


def decide(
    *,
    namespace: str,
    labels: Mapping[str, str],
    record: Record | None,
    owner: str,
    wanted: Mapping[str, str] | None,
    alive: bool,
) -> Decision:
    """Decide what becomes of a namespace's mesh labels.

    Args:
        namespace: Its name, for messages.
        labels: All labels that it has.
        record: What its annotation says.
        owner: This application.
        wanted: The labels of a member; None when the namespace should not be one through us, or
            no Istio is there to say.
        alive: Whether the injector answers, without which nobody new joins.
    """
    present = {key: labels[key] for key in _MESH_LABELS if key in labels}
    if record is not None and record.owner != owner:
        return Decision(record=record, blocked=_rival(namespace, record.owner))
    if obstacle := _obstacle(namespace, labels, present):
        return Decision(record=record, blocked=obstacle)
    ours = dict(record.labels) if record else {}
    if wanted is None or present == wanted:
        return Decision(record=record, joined=bool(present) and present == (wanted or ours))
    if present and present != ours:
        return Decision(
            record=record,
            blocked=f"somebody else set {_text(present)} on namespace {namespace}, where we would "
            f"set {_text(wanted)}: change revision to match, or run: kubectl label ns {namespace} "
            f"{_removal(present)}",
        )
    if not alive:
        return Decision(record=record, waiting="waiting for istiod before joining the mesh")
    before = dict(record.before) if record else {}
    for key in {*present, *wanted}:
        before.setdefault(key, present.get(key) if record is None else None)
    patch: dict[str, str | None] = {key: None for key in present if key not in wanted}
    restored = bool(ours) and not present
    return Decision(
        labels={**patch, **wanted},
        record=Record(owner, wanted, before),
        joined=True,
        log=f"{_text(wanted)} had been removed from namespace {namespace}: it is set again"
        if restored
        else "",
    )


def decide_apart(
    *, namespace: str, labels: Mapping[str, str], record: Record | None, owner: str, wanted: str
) -> Decision:
    """Decide about a namespace that should have no label of the mesh through us.

    Args:
        namespace: Its name, for messages.
        labels: All labels that it has.
        record: What its annotation says.
        owner: This application.
        wanted: `selected`, where pods join one by one, which they only can where the namespace
            says nothing; or `none`.
    """
    if record is not None and record.owner != owner:
        return Decision(record=record, blocked=_rival(namespace, record.owner))
    patch = leave(labels, record) if record else {}
    given_back = Record(owner, {}, {}) if record else None
    if wanted != "selected":
        return Decision(labels=patch, record=given_back)
    after = {key: value for key, value in {**labels, **patch}.items() if value is not None}
    present = {key: after[key] for key in _MESH_LABELS if key in after}
    obstacle = _obstacle(namespace, after, present)
    if present and not obstacle:
        obstacle = (
            f"somebody else set {_text(present)} on namespace {namespace}, so every pod joins: "
            "set mesh-membership=namespace, or run: "
            f"kubectl label ns {namespace} {_removal(present)}"
        )
    return Decision(labels=patch, record=given_back, joined=not obstacle, blocked=obstacle)


def _written(namespace: cluster.Object | None) -> Record | None:
    return Record.read(cluster.at(namespace, "metadata", "annotations"))


def leave(labels: Mapping[str, str], record: Record) -> dict[str, str | None]:
    """Decide how the labels become what they were: those that are still as we set them."""
    return {
        key: record.before.get(key)
        for key in record.before
        if labels.get(key) == record.labels.get(key)
    }


def _rival(namespace: str, owner: str) -> str:
    return f"namespace {namespace} is in the care of {owner}: remove one of us"


def _obstacle(namespace: str, labels: Mapping[str, str], present: Mapping[str, str]) -> str:
    if _CONTROLLER_LABEL in labels:
        return _CONTROLLER
    if labels.get(injectors.DATAPLANE_LABEL) == "ambient":
        return (
            f"namespace {namespace} is in ambient mode: set mesh-membership=none, or run: "
            f"kubectl label ns {namespace} {injectors.DATAPLANE_LABEL}-"
        )
    if present.get(injectors.INJECTION_LABEL) == "disabled":
        return (
            f"namespace {namespace} has {injectors.INJECTION_LABEL}=disabled: set "
            f"mesh-membership=none, or run: kubectl label ns {namespace} "
            f"{injectors.INJECTION_LABEL}-"
        )
    if len(present) > 1:
        return (
            f"namespace {namespace} has both {_text(present)}: run: kubectl label ns {namespace} "
            f"{injectors.REVISION_LABEL}-"
        )
    return ""


def _text(labels: Mapping[str, str]) -> str:
    return " and ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _removal(labels: Iterable[str]) -> str:
    return " ".join(f"{key}-" for key in sorted(labels))


class Membership:
    """Makes the model's namespace a member, and remembers how to undo it."""

    def __init__(self, scope: component.Scope) -> None:
        self._scope = scope
        self._decision = Decision()

    @property
    def joined(self) -> bool:
        """Whether new pods of the model are asked to join, and no other integrator sees to it."""
        return self._decision.joined

    def claim(self) -> str:
        """Record that this application serves the model.

        Returns:
            Why it is not ours to serve: it is a controller's, or another integrator does already.
        """
        scope = self._scope
        namespace = self._namespace()
        if namespace is None:
            return ""
        if _CONTROLLER_LABEL in cluster.at(namespace, "metadata", "labels"):
            return _CONTROLLER
        record = self._record(namespace) or Record(scope.manifests.owner, {}, {})
        if record.owner != scope.manifests.owner:
            return _rival(scope.model, record.owner)
        if scope.leader and record != _written(namespace):
            try:
                self._patch(namespace, {}, record)
            except errors.ForbiddenError as error:
                # One integrator needs no record, so the right to write it is optional.
                logger.info("Model %s is served without a record: %s", scope.model, error)
        return ""

    def reconcile(self) -> None:
        """Set the label, or give it back where membership is not wanted any more."""
        namespace = self._namespace()
        if namespace is None:
            return
        self._decision = self.decided(namespace)
        changed = self._decision.labels or self._decision.record != _written(namespace)
        if changed and self._scope.leader:
            self._patch(namespace, self._decision.labels, self._decision.record)
            if self._decision.log:
                logger.warning("%s.", self._decision.log)

    def decided(self, namespace: cluster.Object) -> Decision:
        """Decide what the options and the mesh make of the model's namespace; nothing is written.

        Args:
            namespace: As it is now.
        """
        scope = self._scope
        labels = cluster.at(namespace, "metadata", "labels")
        record = self._record(namespace)
        owner, wanted = scope.manifests.owner, scope.config.mesh_membership
        if wanted != "namespace":
            return decide_apart(
                namespace=scope.model, labels=labels, record=record, owner=owner, wanted=wanted
            )
        return decide(
            namespace=scope.model,
            labels=labels,
            record=record,
            owner=owner,
            wanted=scope.mesh.namespace_labels if scope.mesh else None,
            alive=scope.mesh is not None and scope.mesh.alive,
        )

    def remove(self) -> None:
        """Give the namespace back as it was, whoever leads."""
        namespace = self._namespace()
        record = self._record(namespace)
        if namespace is not None and record and record.owner == self._scope.manifests.owner:
            labels = cluster.at(namespace, "metadata", "labels")
            self._patch(namespace, leave(labels, record), None)

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say what keeps the namespace out of the mesh."""
        if self._decision.blocked:
            yield ops.BlockedStatus(self._decision.blocked)
        if self._decision.waiting:
            yield ops.WaitingStatus(self._decision.waiting)

    def _namespace(self) -> cluster.Object | None:
        return self._scope.cluster.get(cluster.NAMESPACE, self._scope.model)

    def _record(self, namespace: cluster.Object | None) -> Record | None:
        """Read the record; that of an application which is no more has become ours."""
        record = _written(namespace)
        if record is None or record.owner == self._scope.manifests.owner:
            return record
        if not owners.is_gone(self._scope.cluster, record.owner):
            return record
        return dataclasses.replace(record, owner=self._scope.manifests.owner)

    def _patch(
        self, namespace: cluster.Object, labels: Mapping[str, Any], record: Record | None
    ) -> None:
        patch: cluster.Object = {
            "metadata": {
                "resourceVersion": namespace["metadata"]["resourceVersion"],
                "labels": dict(labels),
                "annotations": {RECORD: record.written() if record else None},
            }
        }
        try:
            self._scope.cluster.merge_patch(namespace, patch)
        except errors.ConflictError:
            # Juju, or another integrator, wrote in between; what to do depends on what they wrote.
            logger.info(
                "Namespace %s changed meanwhile: the next event decides.", self._scope.model
            )
            raise
        if labels:
            logger.info("Namespace %s: labels %s.", self._scope.model, dict(labels))
