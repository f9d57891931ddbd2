"""Decide what the unit agent does next. No input or output here.

The order is Juju's own (facts: uniter resolvers): one operation at a time, the most urgent first.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from .hook import Hook


@dataclass
class LocalRelation:
    """What this unit's hooks have been told about a relation."""

    endpoint: str
    application: str
    """The other side's application; our own for a peer relation."""
    is_peer: bool = False
    created: bool = False
    members: dict[str, int] = field(default_factory=dict)
    """Remote units that joined, with the version of their settings that was last announced."""
    application_version: int = 0
    owed: str = ""
    """A unit that joined and whose `changed` hook has to follow directly."""


@dataclass
class LocalState:
    """Where the unit is in its life; the controller keeps it, so that it survives the pod."""

    installed: bool = False
    started: bool = False
    stopped: bool = False
    removed: bool = False
    leader: bool = False
    leader_settings_seen: bool = False
    config_hash: str = ""
    repeats_config: bool = False
    """Whether config-changed runs a second time, as in Juju 4.0 after each change."""
    relations: dict[str, LocalRelation] = field(default_factory=dict)
    pending: Hook | None = None
    """A hook that is queued to run next, or that failed and is run again."""
    failed: bool = False
    """Whether the pending hook is one that failed: then actions may run before it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> "LocalState":
        """Read what `to_dict` wrote; an empty mapping is a new unit."""
        values = dict(raw)
        values["relations"] = {
            key: LocalRelation(**relation) for key, relation in raw.get("relations", {}).items()
        }
        values["pending"] = Hook(**raw["pending"]) if raw.get("pending") else None
        return cls(**values)


@dataclass(frozen=True)
class RemoteRelation:
    """A relation as the controller knows it."""

    endpoint: str
    application: str
    is_peer: bool
    life: str
    members: dict[str, int]
    application_version: int


@dataclass(frozen=True)
class RemoteState:
    """What the controller wants of the unit."""

    life: str = "alive"
    leader: bool = False
    config_hash: str = ""
    relations: dict[str, RemoteRelation] = field(default_factory=dict)
    actions: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> "RemoteState":
        """Read the controller's answer."""
        return cls(
            life=raw["life"],
            leader=raw["leader"],
            config_hash=raw["config_hash"],
            relations={key: RemoteRelation(**value) for key, value in raw["relations"].items()},
            actions=tuple(raw["actions"]),
        )


@dataclass(frozen=True)
class Moment:
    """What the agent itself knows at this moment."""

    unit: str = ""
    """Our own name."""
    shutting_down: bool = False
    retry_due: bool = True
    """Whether the back-off of a failed hook is over."""
    update_status_due: bool = False
    workload_hook: Hook | None = None
    """The oldest event of a workload container's Pebble."""
    relation_order: tuple[str, ...] = ()
    """The order in which relations are looked at: Juju's is random."""


@dataclass(frozen=True)
class RunAction:
    """Run the action with this number."""

    action: str


@dataclass(frozen=True)
class LeaveScope:
    """Forget a relation for which no hook is owed any more."""

    relation: str


@dataclass(frozen=True)
class Resign:
    """Note that leadership went elsewhere: Juju runs no hook for that."""


@dataclass(frozen=True)
class Finish:
    """End the agent; `dead` when the unit itself ends."""

    dead: bool


Step = Hook | RunAction | LeaveScope | Resign | Finish


def next_step(  # noqa: PLR0911  one return per kind of step, most urgent first
    local: LocalState, remote: RemoteState, moment: Moment
) -> Step | None:
    """Return the one thing to do next, or None to wait."""
    if remote.life == "dead" or local.removed:
        return Finish(dead=True)
    if moment.shutting_down:
        if local.started and not local.stopped:
            return Hook(kind="stop")
        return Finish(dead=False)
    if local.pending is not None:
        if local.failed and local.installed and remote.actions:
            return RunAction(remote.actions[0])
        return local.pending if moment.retry_due or not local.failed else None
    if not local.installed:
        return Finish(dead=True) if remote.life == "dying" else Hook(kind="install")
    if not local.started and local.config_hash and remote.life == "alive":
        return Hook(kind="start")
    return (
        _relation_created(local, remote, moment)
        or _leadership(local, remote)
        or moment.workload_hook
        or (RunAction(remote.actions[0]) if remote.actions else None)
        or (_dying(local, remote, moment) if remote.life == "dying" else None)
        or _alive(local, remote, moment)
    )


def _relation_created(local: LocalState, remote: RemoteState, moment: Moment) -> Hook | None:
    if remote.life != "alive":
        return None
    for key in moment.relation_order:
        known = local.relations.get(key)
        if known and not known.created and key in remote.relations:
            return Hook(
                kind="relation-created",
                relation=key,
                endpoint=known.endpoint,
                remote_application=known.application,
            )
    return None


def _leadership(local: LocalState, remote: RemoteState) -> Step | None:
    if remote.life != "alive":
        return None
    if remote.leader and not local.leader:
        return Hook(kind="leader-elected")
    if not remote.leader and local.leader:
        return Resign()
    if not remote.leader and not local.leader_settings_seen:
        return Hook(kind="leader-settings-changed")
    return None


def _alive(local: LocalState, remote: RemoteState, moment: Moment) -> Step | None:
    if remote.life != "alive":
        return None
    if local.config_hash != remote.config_hash or local.repeats_config:
        return Hook(kind="config-changed")
    for key in moment.relation_order:
        step = _relation(key, local.relations.get(key), remote.relations.get(key), dying_unit="")
        if step:
            return step
    return Hook(kind="update-status") if moment.update_status_due else None


def _dying(local: LocalState, remote: RemoteState, moment: Moment) -> Step:
    for key in moment.relation_order:
        relation = local.relations.get(key)
        step = _relation(key, relation, remote.relations.get(key), dying_unit=moment.unit)
        if step:
            return step
    return Hook(kind="remove") if local.stopped else Hook(kind="stop")


@dataclass(frozen=True)
class _RelationView:
    """One relation on both sides, and whether the unit is to leave it."""

    key: str
    local: LocalRelation
    remote: RemoteRelation | None
    dying_unit: str
    """Our own name when we are what ends."""

    @property
    def is_ending(self) -> bool:
        return bool(self.dying_unit) or self.remote is None or self.remote.life != "alive"

    @property
    def members(self) -> dict[str, int]:
        """Remote units that we are to know; none of a relation that ends."""
        return {} if self.remote is None or self.is_ending else self.remote.members

    def hook(self, kind: str, unit: str = "", version: int = 0, departing: str = "") -> Hook:
        return Hook(
            kind=f"relation-{kind}",
            relation=self.key,
            endpoint=self.local.endpoint,
            remote_application=self.local.application,
            remote_unit=unit,
            version=version,
            departing_unit=departing,
        )


def _relation(
    key: str, local: LocalRelation | None, remote: RemoteRelation | None, *, dying_unit: str
) -> Step | None:
    if local is None:
        return None
    view = _RelationView(key, local, remote, dying_unit)
    if local.owed:
        version = remote.members.get(local.owed, 0) if remote else 0
        return view.hook("changed", local.owed, version)
    for unit in sorted(local.members):
        if unit not in view.members:
            return view.hook("departed", unit, departing=dying_unit or unit)
    return _end_of_relation(view) if view.is_ending else _news_of_relation(view)


def _end_of_relation(view: _RelationView) -> Step | None:
    if view.local.is_peer and view.dying_unit:
        # A dying unit stays in the scope of its peers until it is dead.
        return None
    return view.hook("broken") if view.local.created else LeaveScope(view.key)


def _news_of_relation(view: _RelationView) -> Hook | None:
    local, remote = view.local, view.remote
    if not local.created or remote is None:
        return None
    if remote.application_version != local.application_version:
        return view.hook("changed", version=remote.application_version)
    for unit in sorted(view.members):
        if unit not in local.members:
            return view.hook("joined", unit, view.members[unit])
    for unit in sorted(view.members):
        if view.members[unit] != local.members[unit]:
            return view.hook("changed", unit, view.members[unit])
    return None


def after_success(local: LocalState, hook: Hook, config_hash: str) -> None:
    """Change the state to what holds once the hook has committed."""
    if local.pending == hook:
        local.pending, local.failed = None, False
    if hook.is_relation:
        _after_relation_hook(local, hook)
        return
    match hook.kind:
        case "install":
            local.installed = True
        case "start":
            local.started, local.stopped = True, False
        case "upgrade-charm":
            local.pending = Hook(kind="config-changed")
        case "config-changed":
            local.repeats_config = local.started and local.config_hash != config_hash
            local.config_hash = config_hash
            if not local.started:
                local.pending = Hook(kind="start")
        case "leader-elected":
            local.leader = True
        case "leader-settings-changed":
            local.leader_settings_seen = True
        case "stop":
            local.started, local.stopped = False, True
        case "remove":
            local.removed = True
        case _:
            pass


def _after_relation_hook(local: LocalState, hook: Hook) -> None:
    relation = local.relations[hook.relation]
    match hook.kind.removeprefix("relation-"):
        case "created":
            relation.created = True
        case "joined":
            relation.members[hook.remote_unit] = hook.version
            relation.owed = hook.remote_unit
        case "changed" if hook.remote_unit:
            relation.members[hook.remote_unit] = hook.version
            relation.owed = ""
        case "changed":
            relation.application_version = hook.version
        case "departed":
            relation.members.pop(hook.remote_unit, None)
        case _:
            del local.relations[hook.relation]


def after_agent_start(local: LocalState, *, has_charm: bool) -> None:
    """Prepare the state for an agent that has just started.

    Args:
        local: What the controller kept of the unit.
        has_charm: Whether the charm's folder is there. It is not in a new pod, whose volume is
            empty: then the charm sees an upgrade before its configuration and its start.
    """
    local.leader_settings_seen = False
    if not local.installed:
        return
    local.started = False
    if not has_charm:
        local.pending, local.failed = Hook(kind="upgrade-charm"), False
