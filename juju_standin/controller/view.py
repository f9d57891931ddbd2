"""The status of a model and of a unit, with the keys of Juju's JSON that tests read. Pure."""

import time
from typing import Any

from .calls import CallError
from .state import Application, Model, Status, Unit

WORST_FIRST = ("error", "blocked", "maintenance", "waiting", "active", "unknown", "terminated")


LOST_AFTER = 8.0
"""Seconds without its agent after which a unit is lost, as seen with Juju 4.0.15."""


def status(model: Model) -> dict[str, Any]:
    """The whole model."""
    return {
        "applications": {
            name: _application(model, application)
            for name, application in sorted(model.applications.items())
        },
    }


def _application(model: Model, application: Application) -> dict[str, Any]:
    relations: dict[str, list[dict[str, str]]] = {}
    for relation in model.relations_of(application.name).values():
        side, other = relation.side_of(application.name), relation.other_side(application.name)
        assert side
        relations.setdefault(side.endpoint, []).append(
            {
                "related-application": other.application,
                "interface": relation.interface,
            }
        )
    return {
        "charm": application.charm,
        "scale": application.scale,
        "life": application.life,
        "application-status": _shown(_application_status(application)),
        "relations": relations,
        "units": {
            name: _unit(application, unit)
            for name, unit in sorted(application.units.items(), key=_ordinal)
        },
    }


def _ordinal(item: tuple[str, Unit]) -> int:
    return int(item[0].rpartition("/")[2])


def _application_status(application: Application) -> Status:
    shown = [_workload_status(unit) for unit in application.units.values()]
    if not shown:
        return Status("unknown")
    return min(shown, key=lambda s: WORST_FIRST.index(s.status))


def is_lost(unit: Unit) -> bool:
    """Whether a unit's agent has gone away (apiserver/common/unitstatus.go)."""
    return unit.life != "dead" and 0 < unit.seen < time.time() - LOST_AFTER


def _workload_status(unit: Unit) -> Status:
    # A failed hook shows as the workload's error while the agent is idle.
    if unit.agent.status == "error":
        return unit.agent
    if is_lost(unit) and unit.workload.status != "terminated":
        message = f"agent lost, see 'juju show-status-log {unit.name}'"
        return Status("unknown", message, since=unit.seen)
    return unit.workload


def _unit(application: Application, unit: Unit) -> dict[str, Any]:
    agent = unit.agent
    if agent.status == "error":
        agent = Status("idle", since=agent.since)
    if is_lost(unit):
        agent = Status("lost", "agent is not communicating with the server", since=unit.seen)
    result: dict[str, Any] = {
        "workload-status": _shown(_workload_status(unit)),
        "juju-status": _shown(agent),
        "address": unit.address,
    }
    if unit.life != "alive":
        result["life"] = unit.life
    if application.leader == unit.name:
        result["leader"] = True
    return result


def _shown(value: Status) -> dict[str, Any]:
    return {"current": value.status, **({"message": value.message} if value.message else {})}


def unit(model: Model, name: str) -> dict[str, Any]:
    """One unit with everything in its relations."""
    found = model.unit(name)
    if found is None:
        raise CallError(f'unit "{name}" not found')
    own = name.rpartition("/")[0]
    related: list[dict[str, Any]] = []
    for relation in model.relations_of(own).values():
        side = relation.side_of(own)
        assert side
        related.append(
            {
                "relation-id": relation.number,
                "endpoint": side.endpoint,
                "local-application-data": relation.bag(own).settings,
                "local-unit": {"data": relation.bag(name).settings},
            }
        )
    return {
        name: {
            "relation-info": related,
        }
    }
