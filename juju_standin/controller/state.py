"""What the controller knows: models and everything in them, as plain values kept in files."""

import time
from typing import Any

import msgspec

Settings = dict[str, str]

JUJU_VERSION = "3.6.9"
"""The Juju whose behaviour is imitated; ops gates features on it."""

LEASE = 60.0
"""Seconds for which leadership is held after each claim."""


class Status(msgspec.Struct):
    """A status with its message."""

    status: str = "unknown"
    message: str = ""
    since: float = msgspec.field(default_factory=time.time)


class Unit(msgspec.Struct):
    """One unit, and what its agent left here."""

    name: str
    life: str = "alive"
    """alive, dying or dead."""
    pod_name: str = ""
    pod_uuid: str = ""
    address: str = ""
    introduced: bool = False
    """Whether a pod of this unit ever called."""
    seen: float = 0
    """When its agent was last connected; 0 before its first call."""
    workload: Status = msgspec.field(default_factory=lambda: Status("waiting", "installing agent"))
    agent: Status = msgspec.field(default_factory=lambda: Status("allocating"))
    uniter_state: dict[str, Any] = {}
    ports: list[str] = []
    resolved: bool = False
    """Whether the operator's `resolved --no-retry` waits for the agent."""


class Application(msgspec.Struct):
    """One application."""

    name: str
    charm: str
    """The charm's own name."""
    charm_file: str = ""
    """The packed charm; empty for a scripted application."""
    metadata: dict[str, Any] = {}
    options: dict[str, Any] = {}
    """Definitions of the configuration options."""
    actions: dict[str, Any] = {}
    charm_modified_version: int = 0
    life: str = "alive"
    is_forced: bool = False
    """Whether it is removed by force: then Juju's objects stay on the cluster."""
    trust: bool = False
    scale: int = 1
    config: dict[str, Any] = {}
    """What the operator set; defaults are in `options`."""
    announced: dict[str, Any] = {}
    """The effective configuration of the last change that runs config-changed: no reset does."""
    resources: Settings = {}
    password: str = ""
    storage_id: str = ""
    units: dict[str, Unit] = {}
    leader: str = ""
    lease_until: float = 0
    service_address: str = ""
    script: dict[str, Any] = {}
    """A scripted application's settings: endpoint → {application: {}, unit: {}}."""

    @property
    def is_scripted(self) -> bool:
        """Whether it has no charm: `fake-app` made it."""
        return not self.charm_file

    def endpoints(self) -> dict[str, tuple[str, str]]:
        """Endpoint → role and interface."""
        roles = ("provides", "requires", "peers")
        return {
            name: (role, definition["interface"])
            for role in roles
            for name, definition in (self.metadata.get(role) or {}).items()
        }

    def settings(self) -> dict[str, Any]:
        """The effective configuration; options without a value are absent."""
        defaults = {name: option.get("default") for name, option in self.options.items()}
        return {k: v for k, v in {**defaults, **self.config}.items() if v is not None}


class Side(msgspec.Struct):
    """One end of a relation."""

    application: str
    endpoint: str


class Bag(msgspec.Struct):
    """Settings of one unit or application in a relation, with a version that grows."""

    settings: Settings = {}
    version: int = 0


class Relation(msgspec.Struct):
    """A relation between two applications, or a peer relation of one."""

    number: int
    interface: str
    sides: list[Side]
    life: str = "alive"
    bags: dict[str, Bag] = {}
    scope: list[str] = []
    """Units that have entered: the others can see them."""

    @property
    def is_peer(self) -> bool:
        """Whether both sides are one."""
        return len(self.sides) == 1

    def side_of(self, application: str) -> Side | None:
        """An application's end."""
        return next((side for side in self.sides if side.application == application), None)

    def other_side(self, application: str) -> Side:
        """The end that an application talks to: its own for a peer relation."""
        return next((s for s in self.sides if s.application != application), self.sides[0])

    def bag(self, entity: str) -> Bag:
        """The settings of a unit or application, which may be none yet."""
        return self.bags.setdefault(entity, Bag())


class Secret(msgspec.Struct):
    """A charm's secret."""

    address: str
    owner: str
    """A unit or an application."""
    label: str = ""
    description: str = ""
    rotate: str = ""
    expire: str = ""
    revisions: dict[int, Settings] = {}
    tracked: dict[str, int] = {}
    """unit → the revision that it reads without a refresh."""

    @property
    def latest(self) -> int:
        """The newest revision."""
        return max(self.revisions)


class Action(msgspec.Struct):
    """A run of an action."""

    id: str
    unit: str
    action: str
    parameters: dict[str, Any]
    status: str = "pending"
    message: str = ""
    results: dict[str, Any] = {}


class Model(msgspec.Struct):
    """One model: a namespace of the cluster."""

    name: str
    uuid: str
    controller_uuid: str
    config: dict[str, Any] = {}
    life: str = "alive"
    applications: dict[str, Application] = {}
    relations: dict[str, Relation] = {}
    secrets: dict[str, Secret] = {}
    operations: dict[str, Action] = {}
    next_number: int = 1
    """The number that the next relation or action gets."""
    password: str = ""
    """What the model operator shows."""
    abandoned: list[str] = []
    """Applications that were removed by force, whose cluster-scoped objects are still there."""
    has_namespace: bool = False
    """Whether the namespace was created: it is not created again when somebody deletes it."""

    def take_number(self) -> int:
        """A number that nothing else in the model has."""
        self.next_number += 1
        return self.next_number - 1

    def unit(self, name: str) -> Unit | None:
        """A unit by its name."""
        application = self.applications.get(name.rpartition("/")[0])
        return application.units.get(name) if application else None

    def relations_of(self, application: str) -> dict[str, Relation]:
        """Relations that an application is a side of, by number."""
        return {key: r for key, r in self.relations.items() if r.side_of(application)}
