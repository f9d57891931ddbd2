"""The relations of this application: their events and their data bags."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping

import ops

logger = logging.getLogger(__name__)

CERTIFICATES = "certificates"
LOGGING = "logging"
"""On this endpoint each unit has a data bag, so the departure of a unit matters."""


def list_events(charm: ops.CharmBase) -> Iterable[ops.BoundEvent]:
    """List the events after which data bags of other applications may differ.

    relation-created and relation-joined are left out, since Juju emits relation-changed after
    relation-joined.
    """
    for endpoint in (*charm.meta.provides, *charm.meta.requires):
        yield charm.on[endpoint].relation_changed
        yield charm.on[endpoint].relation_broken
    yield charm.on[LOGGING].relation_departed


@dataclasses.dataclass(frozen=True)
class Bag:
    """The data bag of one related application."""

    relation: int
    """The relation's id, which is unique in the model."""
    application: str
    content: Mapping[str, str]


class Relations:
    """The data bags of this application's relations, as they are in this hook."""

    def __init__(self, charm: ops.CharmBase) -> None:
        self._charm = charm

    def is_related(self, *endpoints: str) -> bool:
        """Tell whether any of the endpoints has a relation."""
        return any(self._list_active(endpoint) for endpoint in endpoints)

    def list_bags(self, endpoint: str) -> list[Bag]:
        """Return the bags of the applications on the other side, the oldest relation first."""
        found: list[Bag] = []
        for relation in self._list_active(endpoint):
            try:
                content = dict(relation.data[relation.app])
            except ops.ModelError:
                # The remote application is gone; relation-broken follows.
                content = {}
            found.append(Bag(relation.id, relation.app.name, content))
        return sorted(found, key=lambda bag: bag.relation)

    def write(self, endpoint: str, bag: Mapping[str, str]) -> None:
        """Write to every relation of an endpoint, as the application; only the leader may."""
        for relation in self._list_active(endpoint) if self._charm.unit.is_leader() else ():
            try:
                _update_bag(relation.data[self._charm.app], bag)
            except ops.RelationDataAccessError as error:
                # Another unit became leader during a long hook, and will write the data.
                logger.info("Relation %s is not written: %s", relation.name, error)

    def list_unit_bags(self, endpoint: str) -> dict[str, dict[str, str]]:
        """Return the data bags of the units on the other side, by the units' names."""
        return {
            unit.name: dict(relation.data[unit])
            for relation in self._list_active(endpoint)
            for unit in relation.units
        }

    def publish_unit(self, endpoint: str, bag: Callable[[str], Mapping[str, str]]) -> None:
        """Write the unit's data to every relation of an endpoint.

        `bag` returns the data for the unit's address in the relation.
        """
        for relation in self._list_active(endpoint):
            binding = self._charm.model.get_binding(relation)
            address = binding.network.bind_address if binding else None
            if address is not None:
                _update_bag(relation.data[self._charm.unit], bag(str(address)))

    def _list_active(self, endpoint: str) -> list[ops.Relation]:
        # A relation in its relation-broken hook counts as removed.
        return [each for each in self._charm.model.relations[endpoint] if each.active]


def _update_bag(own: ops.RelationDataContent, bag: Mapping[str, str]) -> None:
    for key, value in bag.items():
        # Juju does not store empty values.
        if own.get(key, "") != value:
            own[key] = value
