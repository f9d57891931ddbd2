"""What the operator's commands change in a model."""

import secrets
import uuid
from pathlib import Path
from typing import Any

import msgspec

from . import charms
from .calls import CallError
from .state import Action, Application, Model, Relation, Side, Status, Unit
from .store import Store

NETWORK_KEYS = {
    "egress-subnets": "192.0.2.1/32",
    "ingress-address": "192.0.2.1",
    "private-address": "192.0.2.1",
}
"""What Juju fills into every unit's settings; a scripted unit has an address that nobody has."""


def add_model(store: Store, name: str, controller_uuid: str, config: dict[str, Any]) -> Model:
    """Create a model."""
    if name in store.models:
        raise CallError(f'model "{name}" already exists')
    model = Model(
        name, str(uuid.uuid4()), controller_uuid, config, password=secrets.token_urlsafe(18)
    )
    store.models[name] = model
    store.touch(model)
    return model


def deploy(
    model: Model,
    charm: Path,
    *,
    name: str,
    config: dict[str, str],
    resources: dict[str, str],
    trust: bool,
    units: int,
) -> Application:
    """Create an application from a packed charm."""
    parts = charms.read(charm)
    name = name or parts["metadata"]["name"]
    _require_free_name(model, name)
    declared = parts["metadata"].get("resources") or {}
    images = {
        resource: definition.get("upstream-source", "")
        for resource, definition in declared.items()
        if definition.get("type") == "oci-image"
    }
    _require_known("resource", resources, images)
    missing = sorted(set(images) - {k for k, v in {**images, **resources}.items() if v})
    if missing:
        raise CallError(f"no image for resources {', '.join(missing)}: use --resource")
    application = Application(
        name=name,
        charm=parts["metadata"]["name"],
        charm_file=str(charm),
        metadata=parts["metadata"],
        options=parts["config"],
        actions=parts["actions"],
        trust=trust,
        scale=0,
        config=charms.settings(parts["config"], config),
        resources={**images, **resources},
        password=secrets.token_urlsafe(18),
        storage_id=secrets.token_hex(3),
    )
    application.announced = application.settings()
    model.applications[name] = application
    for endpoint, (role, interface) in application.endpoints().items():
        if role == "peers":
            _relate(model, interface, [Side(name, endpoint)])
    add_units(application, units)
    return application


def fake_application(model: Model, name: str, script: dict[str, dict[str, Any]]) -> Application:
    """Create or change a scripted application: its settings appear in every relation.

    Args:
        model: Where.
        name: Its name.
        script: endpoint → role, interface, and the settings of its application and unit.
    """
    application = model.applications.get(name)
    if application is None:
        application = Application(name=name, charm=name)
        application.units[f"{name}/0"] = Unit(
            name=f"{name}/0", workload=Status("active", "scripted"), agent=Status("idle")
        )
        application.leader, application.lease_until = f"{name}/0", float("inf")
        model.applications[name] = application
    elif not application.is_scripted:
        raise CallError(f'application "{name}" is not scripted')
    for endpoint, given in script.items():
        role = given.get("role", "provides")
        interface = given.get("interface", "")
        application.metadata.setdefault(role, {}).setdefault(endpoint, {"interface": interface})
        application.script[endpoint] = given
    for relation in model.relations_of(name).values():
        _play_script(application, relation)
    return application


def _play_script(application: Application, relation: Relation) -> None:
    side = relation.side_of(application.name)
    script = application.script.get(side.endpoint) if side else None
    unit = f"{application.name}/0"
    if script is None:
        return
    if unit not in relation.scope:
        relation.scope.append(unit)
    for entity, kind in ((application.name, "application"), (unit, "unit")):
        wanted = {key: str(value) for key, value in (script.get(kind) or {}).items()}
        if entity == unit:
            wanted = {**NETWORK_KEYS, **wanted}
        bag = relation.bag(entity)
        if bag.settings != wanted:
            bag.settings, bag.version = wanted, bag.version + 1


def add_units(application: Application, count: int) -> None:
    """Make an application larger."""
    for _ in range(count):
        name = f"{application.name}/{application.scale}"
        if name in application.units:
            raise CallError(f"unit {name} is still being removed")
        application.units[name] = Unit(name=name)
        application.scale += 1


def remove_units(model: Model, application: Application, count: int) -> None:
    """Make an application smaller: the units with the highest numbers go."""
    if count > application.scale:
        raise CallError(f"application has only {application.scale} units")
    for _ in range(count):
        application.scale -= 1
        _end(model, application.units[f"{application.name}/{application.scale}"])


def _end(model: Model, unit: Unit) -> None:
    """Let a unit run its last hooks if it is in a relation.

    Without relation and storage Juju 4.0.15 ends it at once (domain/removal/state/model/unit.go,
    MarkUnitAsDeadWithNoEntities), and it runs no hook.
    """
    is_related = any(unit.name in relation.scope for relation in model.relations.values())
    unit.life = "dying" if is_related else "dead"


def remove_application(model: Model, application: Application, *, force: bool) -> None:
    """Let an application's units run their last hooks; by force, without hooks.

    Juju 4.0.15 runs no hook by force, with a healthy unit neither. Juju 3.6 tries for a minute.
    """
    application.life, application.scale = "dying", 0
    application.is_forced = force
    for unit in application.units.values():
        if force or application.is_scripted:
            unit.life = "dead"
        elif unit.life == "alive":
            _end(model, unit)
    for relation in model.relations_of(application.name).values():
        remove_relation(relation)
        if force or application.is_scripted:
            relation.scope = [u for u in relation.scope if u not in application.units]


def configure(application: Application, values: dict[str, str], reset: list[str]) -> None:
    """Set and reset configuration options.

    Juju 4.0.15 runs no hook for what is reset: the charm sees it in its next hook.
    """
    _require_known("option", dict.fromkeys(reset, ""), application.options)
    given = charms.settings(application.options, values)
    application.config.update(given)
    if given:
        application.announced = application.settings()
    for name in reset:
        application.config.pop(name, None)


def refresh(application: Application, charm: Path | None, resources: dict[str, str]) -> None:
    """Change the charm or its images: the pods are replaced.

    Juju 4.0.15 refuses a charm that has an endpoint which the charm before it lacks.
    """
    _require_known("resource", resources, application.resources)
    if charm:
        parts = charms.read(charm)
        refreshed = msgspec.structs.replace(application, metadata=parts["metadata"])
        added = sorted(set(refreshed.endpoints()) - set(application.endpoints()))
        if added:
            raise CallError(f'endpoints "{", ".join(added)}" do not exist')
        application.charm_file = str(charm)
        application.metadata, application.actions = parts["metadata"], parts["actions"]
        application.options = parts["config"]
        kept = application.config.items()
        application.config = {k: v for k, v in kept if k in application.options}
    application.resources.update(resources)
    application.charm_modified_version += 1


def integrate(model: Model, first: str, second: str) -> Relation:
    """Relate two applications by the one pair of endpoints that fits."""
    pairs = [
        (one, other, interface)
        for one, role, interface in _ends(model, first)
        for other, other_role, other_interface in _ends(model, second)
        if {role, other_role} == {"provides", "requires"}
        and (interface == other_interface or not interface or not other_interface)
    ]
    if not pairs:
        raise CallError(f"no relations found between {first} and {second}")
    if len(pairs) > 1:
        choices = "; ".join(f'"{_text(one)} {_text(other)}"' for one, other, _ in pairs)
        raise CallError(f"ambiguous relation: {first} {second} could refer to {choices}")
    one, other, interface = pairs[0]
    if _find_relation(model, one, other):
        raise CallError(f"cannot add relation {_text(one)} {_text(other)}: it already exists")
    return _relate(model, interface, [one, other])


def remove_relation_between(model: Model, first: str, second: str) -> None:
    """Remove the relation between two applications."""
    found = [
        relation
        for relation in model.relations.values()
        if not relation.is_peer
        and all(any(_matches(side, text) for side in relation.sides) for text in (first, second))
    ]
    if len(found) != 1:
        raise CallError(f"{len(found)} relations found between {first} and {second}")
    remove_relation(found[0])


def remove_relation(relation: Relation) -> None:
    """Let both sides run their departed and broken hooks."""
    relation.life = "dying"


def run_action(model: Model, target: str, name: str, parameters: dict[str, Any]) -> Action:
    """Queue an action for a unit, or for `APP/leader`."""
    application_name, _, which = target.rpartition("/")
    application = find_application(model, application_name or target)
    unit = application.leader if which == "leader" else target
    if unit not in application.units:
        raise CallError(f'unit "{target}" not found')
    if name not in application.actions:
        raise CallError(f'action "{name}" not defined on unit "{unit}"')
    definition = application.actions[name] or {}
    known = definition.get("params") or {}
    if definition.get("additionalProperties") is False:
        _require_known("parameter", parameters, known)
    lacking = sorted(set(definition.get("required") or ()) - set(parameters))
    if lacking:
        raise CallError(f"validation failed: (root) : {', '.join(lacking)} is required")
    defaults = {k: v["default"] for k, v in known.items() if "default" in v}
    number = str(model.take_number())
    model.operations[number] = Action(number, unit, name, {**defaults, **parameters})
    return model.operations[number]


def resolve(model: Model, name: str) -> None:
    """Let a unit go on without its failed hook."""
    unit = model.unit(name)
    if unit is None:
        raise CallError(f'unit "{name}" not found')
    if unit.agent.status != "error":
        raise CallError(f'unit "{name}" is not in an error state')
    unit.resolved = True


def find_application(model: Model, name: str) -> Application:
    """An application, or the error that Juju gives."""
    application = model.applications.get(name)
    if application is None:
        raise CallError(f'application "{name}" not found')
    return application


def _relate(model: Model, interface: str, sides: list[Side]) -> Relation:
    relation = Relation(model.take_number(), interface, sides)
    model.relations[str(relation.number)] = relation
    for side in sides:
        application = model.applications[side.application]
        if application.is_scripted:
            _play_script(application, relation)
    return relation


def _ends(model: Model, text: str) -> list[tuple[Side, str, str]]:
    name, _, endpoint = text.partition(":")
    application = find_application(model, name)
    return [
        (Side(name, known), role, interface)
        for known, (role, interface) in application.endpoints().items()
        if not endpoint or known == endpoint
    ]


def _find_relation(model: Model, one: Side, other: Side) -> Relation | None:
    wanted = {(one.application, one.endpoint), (other.application, other.endpoint)}
    for relation in model.relations.values():
        if {(side.application, side.endpoint) for side in relation.sides} == wanted:
            return relation
    return None


def _matches(side: Side, text: str) -> bool:
    name, _, endpoint = text.partition(":")
    return side.application == name and endpoint in ("", side.endpoint)


def _text(side: Side) -> str:
    return f"{side.application}:{side.endpoint}"


def _require_free_name(model: Model, name: str) -> None:
    if name in model.applications:
        raise CallError(f'cannot add application "{name}": application already exists')


def _require_known(kind: str, given: dict[str, Any], known: dict[str, Any]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise CallError(f"unknown {kind} {', '.join(unknown)}")
