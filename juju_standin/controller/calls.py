"""Who calls the agent interface, and the errors that it answers with."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from .state import LEASE, Application, Model, Unit
from .store import Store


class CallError(Exception):
    """A refusal; hook tools print its text."""


@dataclass
class Call:
    """One call of an agent, with the things that it is about looked up."""

    store: Store
    model: Model
    application: Application
    unit_name: str
    list_pods: Callable[[Model, Application], Awaitable[list[dict[str, Any]]]]
    """Reads the application's pods from the cluster."""

    @property
    def unit(self) -> Unit:
        """The calling unit."""
        unit = self.application.units.get(self.unit_name)
        if unit is None:
            raise CallError(f'unit "{self.unit_name}" not found')
        return unit

    def touch(self) -> None:
        """Note that the model has changed."""
        self.store.touch(self.model)

    def note_presence(self) -> None:
        """Note that the unit's agent is connected now."""
        if unit := self.application.units.get(self.unit_name):
            unit.seen = time.time()

    def claim_leadership(self) -> bool:
        """Take leadership where it is free, renew it where it is ours."""
        application, unit = self.application, self.unit
        is_free = (
            application.leader not in application.units or application.lease_until < time.time()
        )
        if application.leader != unit.name and not (is_free and unit.life == "alive"):
            return False
        if application.leader != unit.name:
            application.leader = unit.name
            self.touch()
        application.lease_until = time.time() + LEASE
        return True

    @property
    def is_leader(self) -> bool:
        """Whether the unit leads at this moment."""
        return self.application.leader == self.unit_name

    def require_leader(self) -> None:
        """Refuse a unit that does not lead."""
        if not self.is_leader:
            raise CallError("this unit is not the leader")


def identify(
    store: Store,
    identity: dict[str, Any],
    list_pods: Callable[[Model, Application], Awaitable[list[dict[str, Any]]]],
) -> Call:
    """Look up who calls.

    Raises:
        CallError: for an unknown application or a wrong password.
    """
    model = store.models.get(identity.get("model", ""))
    application = model.applications.get(identity.get("application", "")) if model else None
    if not model or not application or application.password != identity.get("password"):
        raise CallError("invalid entity name or password")
    return Call(store, model, application, identity.get("unit", ""), list_pods)
