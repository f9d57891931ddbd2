"""The relations of this application: when they change, and what their data bags hold."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping

import ops

logger = logging.getLogger(__name__)

CERTIFICATES = "certificates"
LOGGING = "logging"
"""Here units speak for themselves, so it matters when one of several goes."""


def events(charm: ops.CharmBase) -> Iterable[ops.BoundEvent]:
    """List the events after which another application may have written something else.

    Juju follows relation-joined by relation-changed, so neither that nor relation-created is one.
    """
    for endpoint in charm.meta.relations:
        yield charm.on[endpoint].relation_changed
        yield charm.on[endpoint].relation_broken
    yield charm.on[LOGGING].relation_departed


@dataclasses.dataclass(frozen=True)
class Bag:
    """What one related application wrote."""

    relation: int
    """The relation's id, which is unique in the model."""
    application: str
    content: Mapping[str, str]


class Relations:
    """The data bags of this application's relations, as they are in this hook."""

    def __init__(self, model: ops.Model, application: ops.Application, *, leader: bool) -> None:
        self._model = model
        self._application = application
        self._leader = leader

    def is_related(self, *endpoints: str) -> bool:
        """Tell whether any of the endpoints has a relation."""
        return any(self._active(endpoint) for endpoint in endpoints)

    def bags(self, endpoint: str) -> list[Bag]:
        """Read what each application on the other side of an endpoint wrote."""
        return [
            Bag(relation.id, relation.app.name, _content(relation))
            for relation in self._active(endpoint)
        ]

    def write(self, endpoint: str, bag: Mapping[str, str]) -> None:
        """Write to every relation of an endpoint, as the application; only the leader may."""
        if not self._leader:
            return
        for relation in self._active(endpoint):
            try:
                _update(relation.data[self._application], bag)
            except ops.RelationDataAccessError as error:
                # Leadership went to another unit during a long hook: that one writes.
                logger.info("Relation %s is not written: %s", relation.name, error)

    def own(self, endpoint: str) -> dict[str, str]:
        """Read what this application wrote to the first relation; only the leader may."""
        relations = self._active(endpoint) if self._leader else []
        return dict(relations[0].data[self._application]) if relations else {}

    def unit_bags(self, endpoint: str) -> dict[str, dict[str, str]]:
        """Read what each unit on the other side of an endpoint wrote."""
        return {
            unit.name: dict(relation.data[unit])
            for relation in self._active(endpoint)
            for unit in relation.units
        }

    def publish_unit(self, endpoint: str, bag: Callable[[str], Mapping[str, str]]) -> None:
        """Tell every relation of an endpoint something about this unit.

        Args:
            endpoint: Its name.
            bag: What to tell, given the address that the unit has there.
        """
        for relation in self._active(endpoint):
            binding = self._model.get_binding(relation)
            address = binding.network.bind_address if binding else None
            if address is not None:
                _update(relation.data[self._model.unit], bag(str(address)))

    def _active(self, endpoint: str) -> list[ops.Relation]:
        # A relation that is being broken counts as gone.
        return [relation for relation in self._model.relations[endpoint] if relation.active]


def _content(relation: ops.Relation) -> dict[str, str]:
    try:
        return dict(relation.data[relation.app])
    except ops.ModelError:
        # Gone in the meantime: its own event follows.
        return {}


def _update(own: ops.RelationDataContent, bag: Mapping[str, str]) -> None:
    for key, value in bag.items():
        # What is empty, Juju doesn't keep.
        if own.get(key, "") != value:
            own[key] = value
