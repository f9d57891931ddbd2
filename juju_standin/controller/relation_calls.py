"""Calls of a unit's agent about relations: what it sees, and what it may read."""

from typing import Any

from .calls import Call, CallError
from .state import Relation


def visible_relations(call: Call) -> dict[str, dict[str, Any]]:
    """The relations that matter to a unit: living ones, and those that it still has to leave."""
    application = call.application.name
    result: dict[str, dict[str, Any]] = {}
    for key, relation in call.model.relations_of(application).items():
        if relation.life != "alive" and call.unit_name not in relation.scope:
            continue
        side, other = relation.side_of(application), relation.other_side(application)
        assert side
        members = {
            unit: relation.bag(unit).version
            for unit in sorted(relation.scope)
            if unit.rpartition("/")[0] == other.application and unit != call.unit_name
        }
        result[key] = {
            "endpoint": side.endpoint,
            "application": other.application,
            "is_peer": relation.is_peer,
            "life": relation.life,
            "members": members,
            "application_version": relation.bag(other.application).version,
        }
    return result


def enter_scope(call: Call, *, relation: str) -> None:
    """Let the other side see the unit, with the three keys that Juju fills in."""
    found = _relation(call, relation)
    if call.unit_name in found.scope:
        return
    address = call.application.service_address or call.unit.address
    bag = found.bag(call.unit_name)
    bag.settings = {
        **bag.settings,
        "egress-subnets": f"{address}/32",
        "ingress-address": address,
        "private-address": address,
    }
    bag.version += 1
    found.scope.append(call.unit_name)
    call.touch()


def leave_scope(call: Call, *, relation: str) -> None:
    """Take the unit out of the relation."""
    found = call.model.relations.get(relation)
    if found and call.unit_name in found.scope:
        found.scope.remove(call.unit_name)
        call.touch()


def read_settings(call: Call, *, relation: str, entity: str) -> dict[str, str]:
    """Settings of a unit or an application, for those who may read them."""
    found = _relation(call, relation)
    application = entity.rpartition("/")[0] or entity
    if found.side_of(application) is None:
        raise CallError("permission denied")
    own_application = entity == call.application.name
    if own_application and not found.is_peer and not call.is_leader:
        raise CallError("permission denied")
    return found.bag(entity).settings


def _relation(call: Call, number: str) -> Relation:
    found = call.model.relations.get(number)
    if found is None or found.side_of(call.application.name) is None:
        raise CallError("permission denied")
    return found


METHODS = {function.__name__: function for function in (enter_scope, leave_scope, read_settings)}
