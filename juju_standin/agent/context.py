"""What one hook may read and what it has written but not committed."""

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .api import Controller, ControllerError
from .hook import Hook
from .resolver import LocalRelation

Settings = dict[str, str]


class UnitBagCache:
    """Remote units' settings, kept between hooks until that unit's own hook comes.

    Juju does the same: a charm sees a neighbour's data as of the last hook about it.
    """

    def __init__(self) -> None:
        self._bags: dict[tuple[str, str], Settings] = {}

    def read(self, controller: Controller, relation: str, unit: str) -> Settings:
        """Return the settings, from the controller on the first read only."""
        if (relation, unit) not in self._bags:
            self._bags[relation, unit] = controller.call(
                "read_settings", relation=relation, entity=unit
            )
        return self._bags[relation, unit]

    def forget(self, relation: str, unit: str) -> None:
        """Read afresh the next time."""
        self._bags.pop((relation, unit), None)


@dataclass
class ActionRun:
    """The action that a context runs."""

    number: str
    name: str
    parameters: dict[str, Any]
    results: dict[str, Any] = field(default_factory=dict)
    failed: bool = False
    message: str = ""


@dataclass
class Writes:
    """Everything that waits for the hook's success."""

    settings: dict[str, dict[str, Settings]] = field(default_factory=dict)
    """relation → `unit` or `application` → keys; an empty value deletes."""
    ports: list[tuple[str, str]] = field(default_factory=list)
    """`open` or `close`, and the port with its protocol, in the order of the calls."""
    secrets: list[dict[str, Any]] = field(default_factory=list)


class HookContext:
    """One hook's (or action's) view of the model; its tools work on it until it ends."""

    def __init__(
        self,
        controller: Controller,
        unit: str,
        relations: Mapping[str, LocalRelation],
        cache: UnitBagCache,
        *,
        log: Callable[[str, str, str], None],
        hook: Hook | None = None,
        action: ActionRun | None = None,
    ) -> None:
        name = hook.name if hook else "action"
        self.id = f"{unit}-{name}-{secrets.token_hex(16)}"
        self.controller = controller
        self.log = log
        self.unit = unit
        self.application = unit.rpartition("/")[0]
        self.hook = hook
        self.action = action
        self.writes = Writes()
        self.lock = threading.Lock()
        self._relations = relations
        self._cache = cache
        self._application_bags: dict[tuple[str, str], Settings] = {}
        self._config: dict[str, Any] | None = None
        self._was_refused_leadership = False
        if hook and hook.remote_unit:
            cache.forget(hook.relation, hook.remote_unit)

    @property
    def relations(self) -> Mapping[str, LocalRelation]:
        """The relations that we are in the scope of."""
        return self._relations

    def members(self, relation: str) -> list[str]:
        """Remote units that a hook sees: the one joining is in, the one departing is out."""
        units = set(self._relations[relation].members)
        if self.hook and self.hook.relation == relation and self.hook.remote_unit:
            if self.hook.kind == "relation-departed":
                units.discard(self.hook.remote_unit)
            else:
                units.add(self.hook.remote_unit)
        return sorted(units)

    def is_leader(self) -> bool:
        """Claim or renew leadership; once refused, refused for the rest of the hook."""
        if not self._was_refused_leadership:
            self._was_refused_leadership = not self.controller.call("claim_leadership")
        return not self._was_refused_leadership

    def config(self) -> dict[str, Any]:
        """The configuration, the same during the whole hook."""
        if self._config is None:
            self._config = self.controller.call("config")
        return self._config or {}

    def settings(self, relation: str, entity: str) -> Settings:
        """Settings of a unit or application, our own with what this hook wrote."""
        if entity in (self.unit, self.application):
            scope = "unit" if entity == self.unit else "application"
            bag = dict(self._application_bag(relation, entity))
            bag.update(self.writes.settings.get(relation, {}).get(scope, {}))
            return {key: value for key, value in bag.items() if value != ""}
        if "/" in entity:
            return self._cache.read(self.controller, relation, entity)
        return self._application_bag(relation, entity)

    def _application_bag(self, relation: str, entity: str) -> Settings:
        if (relation, entity) not in self._application_bags:
            self._application_bags[relation, entity] = self.controller.call(
                "read_settings", relation=relation, entity=entity
            )
        return self._application_bags[relation, entity]

    def write_settings(self, relation: str, values: Settings, *, application: bool) -> None:
        """Keep relation settings for the commit."""
        if application and not self.is_leader():
            raise ControllerError("cannot write relation settings")
        scope = "application" if application else "unit"
        self.writes.settings.setdefault(relation, {}).setdefault(scope, {}).update(values)

    def commit(self, uniter_state: dict[str, Any]) -> None:
        """Make all writes real in one step, together with the unit's progress."""
        self.controller.call(
            "commit",
            settings=self.writes.settings,
            ports=self.writes.ports,
            secrets=self.writes.secrets,
            uniter_state=uniter_state,
        )
