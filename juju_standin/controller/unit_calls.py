"""Calls of a unit's agent about itself: its life, its settings, its status, its actions."""

import asyncio
import hashlib
import json
import time
from typing import Any

from . import pod_volumes
from .calls import Call, CallError
from .relation_calls import visible_relations
from .secret_calls import apply_secret_change
from .state import JUJU_VERSION, Relation, Status

PRESENCE = 2.0
"""Seconds after which the presence of an agent that waits for news is noted again."""


async def introduce(call: Call, *, pod_name: str, pod_uuid: str) -> str:
    """Give a new pod its unit: the number is the pod's ordinal."""
    pods = await call.list_pods(call.model, call.application)
    pod_volumes.require_known(call.application.name, pods)
    ordinal = pod_name.rpartition("-")[2]
    unit = call.application.units.get(f"{call.application.name}/{ordinal}")
    if unit is None or call.application.life != "alive" or unit.life == "dead":
        raise CallError(f"unit for pod {pod_name} not assigned")
    unit.pod_name, unit.pod_uuid, unit.introduced = pod_name, pod_uuid, True
    call.touch()
    return unit.name


def login(call: Call, *, address: str) -> dict[str, Any]:
    """Begin an agent's (or its uniter's) life."""
    unit = call.unit
    unit.address, unit.introduced = address, True
    call.touch()
    model = {
        "name": call.model.name,
        "uuid": call.model.uuid,
        "juju_version": JUJU_VERSION,
        "cloud_version": call.model.config.get("cloud-version", ""),
    }
    return {"uniter_state": unit.uniter_state, "model": model}


def snapshot(call: Call) -> dict[str, Any]:
    """Everything that decides what the unit does next; asking renews leadership."""
    unit, application = call.unit, call.application
    leads = call.claim_leadership()
    waiting = [
        action.id
        for action in call.model.operations.values()
        if action.unit == unit.name and action.status in ("pending", "running")
    ]
    return {
        "unit": {
            "life": unit.life,
            "leader": leads,
            "config_hash": _hash([application.announced, application.trust, unit.address]),
            "relations": visible_relations(call),
            "actions": waiting,
        },
        "update_status_interval": seconds(
            call.model.config.get("update-status-hook-interval", "5m")
        ),
        "workload_notices": call.model.config.get("testbed-workload-notices") != "false",
        "resolved": unit.resolved,
    }


async def watch(call: Call, *, seen: str, seconds: float) -> str:
    """Answer when the snapshot is another than the one seen, or after some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        version = call.store.version(call.model.name)
        now = _hash(snapshot(call))
        left = deadline - time.monotonic()
        if now != seen or left <= 0:
            return now
        await call.store.wait_for_change(call.model.name, version, min(left, PRESENCE))
        call.note_presence()
        # A burst of changes (each status is one) is worth one answer.
        await asyncio.sleep(0.05)


def claim_leadership(call: Call) -> bool:
    """The `is-leader` tool."""
    return call.claim_leadership()


def will_restart(call: Call) -> bool:
    """Whether a pod that is told to end comes back as the same unit."""
    ordinal = int(call.unit_name.rpartition("/")[2])
    return (
        call.application.life == "alive"
        and call.unit.life == "alive"
        and ordinal < call.application.scale
    )


def started(call: Call) -> None:
    """After the start hook, a charm that has not said its status has an unknown one."""
    if call.unit.workload.message in ("installing agent", "installing charm software"):
        call.unit.workload = Status()
        call.touch()


def unit_dead(call: Call) -> None:
    """The unit has run its last hook."""
    call.unit.life = "dead"
    for relation in call.model.relations.values():
        if call.unit_name in relation.scope:
            relation.scope.remove(call.unit_name)
    call.touch()


def save_state(call: Call, *, uniter_state: dict[str, Any]) -> None:
    """Keep where the agent is."""
    call.unit.uniter_state = uniter_state


def commit(
    call: Call,
    *,
    settings: dict[str, dict[str, dict[str, str]]],
    ports: list[tuple[str, str]],
    secrets: list[dict[str, Any]],
    uniter_state: dict[str, Any],
) -> None:
    """Make a hook's writes real, all or none of them."""
    needs_leadership = any("application" in scopes for scopes in settings.values()) or any(
        change.get("owner") == "application" for change in secrets
    )
    if needs_leadership and not call.is_leader:
        raise CallError("cannot write settings: leadership lost")
    for change in secrets:
        apply_secret_change(call, change)
    for number, scopes in settings.items():
        relation = call.model.relations.get(number)
        if relation:
            _write(relation, call.unit_name, scopes.get("unit", {}))
            _write(relation, call.application.name, scopes.get("application", {}))
    for change, port in ports:
        kept = [known for known in call.unit.ports if known != port]
        call.unit.ports = [*kept, port] if change == "open" else kept
    call.unit.uniter_state = uniter_state
    call.touch()


def _write(relation: Relation, entity: str, values: dict[str, str]) -> None:
    bag = relation.bag(entity)
    merged = {key: value for key, value in {**bag.settings, **values}.items() if value != ""}
    if merged != bag.settings:
        bag.settings, bag.version = merged, bag.version + 1


def set_status(call: Call, *, status: str, message: str) -> None:
    """Set the unit's status."""
    call.unit.workload = Status(status, message)
    call.touch()


def set_agent_status(call: Call, *, status: str, message: str) -> None:
    """Say what the agent does."""
    if (call.unit.agent.status, call.unit.agent.message) != (status, message):
        call.unit.agent = Status(status, message)
        call.touch()


def config(call: Call) -> dict[str, Any]:
    """The effective configuration."""
    return call.application.settings()


def opened_ports(call: Call) -> list[str]:
    """The unit's open ports."""
    return sorted(call.unit.ports)


def log(call: Call, *, lines: list[list[str]]) -> None:
    """Append to the model's log."""
    for level, module, message in lines:
        call.store.log(call.model.name, call.unit_name, level, module, message)


def network(call: Call) -> dict[str, Any]:
    """The `network-get` tool: the pod's address, and the Service's for others."""
    bind = call.unit.address
    ingress = call.application.service_address or bind
    return {
        "bind-addresses": [
            {
                "mac-address": "",
                "interface-name": "",
                "addresses": [{"hostname": "", "value": bind, "cidr": ""}],
            }
        ],
        "egress-subnets": [f"{ingress}/32"],
        "ingress-addresses": [ingress],
    }


def goal_state(call: Call) -> dict[str, Any]:
    """Units as they are meant to become; relations are left out."""

    def since(moment: float) -> str:
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(moment))

    units = {
        unit.name: {
            "status": "dying" if unit.life != "alive" else unit.workload.status,
            "since": since(unit.workload.since),
        }
        for unit in call.application.units.values()
        if unit.life != "dead"
    }
    return {"units": units, "relations": {}}


def begin_action(call: Call, *, action: str) -> dict[str, Any]:
    """Mark an action running."""
    run = call.model.operations[action]
    run.status = "running"
    call.touch()
    return {"name": run.action, "parameters": run.parameters}


def finish_action(
    call: Call, *, action: str, status: str, message: str, results: dict[str, Any]
) -> None:
    """Keep an action's outcome."""
    run = call.model.operations[action]
    run.status, run.message, run.results = status, message, results
    call.touch()


def clear_resolved(call: Call) -> None:
    """The agent has seen the operator's `resolved`."""
    call.unit.resolved = False
    call.touch()


def seconds(text: Any) -> float:
    """Read a Go duration of one unit, such as `5m` or `10s`; `0` switches off."""
    value = str(text)
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    for suffix, factor in units.items():
        number = value.removesuffix(suffix)
        if number != value and number.replace(".", "", 1).isdigit():
            return float(number) * factor
    return float(value)


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


METHODS = {
    function.__name__: function
    for function in (
        introduce, login, snapshot, watch, claim_leadership, will_restart, started, unit_dead,
        save_state, commit, set_status, set_agent_status, config, opened_ports, log, network,
        goal_state, begin_action, finish_action, clear_resolved,
    )
}  # fmt: skip
