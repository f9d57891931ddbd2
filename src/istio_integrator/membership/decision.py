"""What becomes of the labels by which the model's namespace joins a mesh; pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from integrator_contract import names
from istio_integrator.kube import records
from istio_integrator.mesh import injectors

CONTROLLER = "a controller model never joins a mesh: deploy into another model"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do with the namespace, and what to say."""

    labels: Mapping[str, str | None] = dataclasses.field(default_factory=dict[str, "str | None"])
    """Merge patch of the labels; empty: leave them."""
    record: records.Record | None = None
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
    record: records.Record | None,
    owner: str,
    member_labels: Mapping[str, str] | None,
    alive: bool,
) -> Decision:
    """Decide about a namespace that joins the mesh with all of its pods.

    Args:
        namespace: Its name, for messages.
        labels: All labels that it has.
        record: What its annotation says.
        owner: This application.
        member_labels: The labels of a member; None while no Istio is there to say.
        alive: Whether the injector answers, without which nobody new joins.
    """
    present = injectors.mesh_labels(labels)
    if record is not None and record.owner != owner:
        return Decision(record=record, blocked=rival(namespace, record.owner))
    if obstacle := _obstacle(namespace, labels, present):
        return Decision(record=record, blocked=obstacle)
    ours = dict(record.values) if record else {}
    if member_labels is None or present == member_labels:
        return Decision(record=record, joined=bool(present) and present == (member_labels or ours))
    if present and present != ours:
        return Decision(
            record=record,
            blocked=f"somebody else set {_text(present)} on namespace {namespace}, where we would "
            f"set {_text(member_labels)}: change revision to match, or run: kubectl label ns "
            f"{namespace} {_removal(present)}",
        )
    if not alive:
        return Decision(record=record, waiting="waiting for istiod before joining the mesh")
    before = dict(record.before) if record else {}
    for key in {*present, *member_labels}:
        before.setdefault(key, present.get(key) if record is None else None)
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
) -> Decision:
    """Decide about a namespace that should have no label of the mesh through us.

    Args:
        namespace: Its name, for messages.
        labels: All labels that it has.
        record: What its annotation says.
        owner: This application.
        membership: The option `mesh-membership`: `selected`, where pods join one by one, which
            they only can where the namespace says nothing; or `none`.
    """
    if record is not None and record.owner != owner:
        return Decision(record=record, blocked=rival(namespace, record.owner))
    patch = leave(labels, record) if record else {}
    given_back = records.Record(owner, {}, {}) if record else None
    if membership != "selected":
        return Decision(labels=patch, record=given_back)
    after = {key: value for key, value in {**labels, **patch}.items() if value is not None}
    present = injectors.mesh_labels(after)
    obstacle = _obstacle(namespace, after, present)
    if present and not obstacle:
        obstacle = (
            f"somebody else set {_text(present)} on namespace {namespace}, so every pod joins: "
            "set mesh-membership=namespace, or run: "
            f"kubectl label ns {namespace} {_removal(present)}"
        )
    return Decision(labels=patch, record=given_back, joined=not obstacle, blocked=obstacle)


def leave(labels: Mapping[str, str], record: records.Record) -> dict[str, str | None]:
    """Return the patch by which the labels that are still as we set them become what they were.

    A record of labels that are not the mesh's is none of ours.
    """
    return {
        key: record.before[key]
        for key in injectors.MEMBERSHIP_LABELS
        if key in record.before and labels.get(key) == record.values.get(key)
    }


def rival(namespace: str, owner: str) -> str:
    """Say that another integrator serves the model."""
    return f"namespace {namespace} is in the care of {owner}: remove one of us"


def _obstacle(namespace: str, labels: Mapping[str, str], present: Mapping[str, str]) -> str:
    if names.CONTROLLER_MODEL in labels:
        return CONTROLLER
    if labels.get(names.DATAPLANE_MODE) == "ambient":
        return (
            f"namespace {namespace} is in ambient mode: set mesh-membership=none, or run: "
            f"kubectl label ns {namespace} {names.DATAPLANE_MODE}-"
        )
    if present.get(names.INJECTION) == "disabled":
        return (
            f"namespace {namespace} has {names.INJECTION}=disabled: set "
            f"mesh-membership=none, or run: kubectl label ns {namespace} "
            f"{names.INJECTION}-"
        )
    if len(present) > 1:
        return (
            f"namespace {namespace} has both {_text(present)}: run: kubectl label ns {namespace} "
            f"{names.REVISION}-"
        )
    return ""


def _text(labels: Mapping[str, str]) -> str:
    return " and ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _removal(labels: Iterable[str]) -> str:
    return " ".join(f"{key}-" for key in sorted(labels))
