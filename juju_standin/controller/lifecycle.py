"""Remove what has come to its end. Pure: changes only the model that it is given."""

from .state import Application, Model


def collect(model: Model) -> bool:
    """Move everything that is dying one step on; say whether anything changed."""
    before = _shape(model)
    for application in model.applications.values():
        _drop_dead_units(application)
    for key, relation in list(model.relations.items()):
        sides = [model.applications.get(side.application) for side in relation.sides]
        if any(side is None or side.life == "dying" for side in sides):
            relation.life = "dying"
        if relation.life == "dying":
            scripted = {u for side in sides if side and side.is_scripted for u in side.units}
            relation.scope = [unit for unit in relation.scope if unit not in scripted]
            if not relation.scope:
                del model.relations[key]
    for application in model.applications.values():
        # Juju counts an application's relations, and removes it with the last; by force without.
        is_related = bool(model.relations_of(application.name)) and not application.is_forced
        if application.life == "dying" and not application.units and not is_related:
            application.life = "dead"
    return _shape(model) != before


def _drop_dead_units(application: Application) -> None:
    leaving = [unit for unit in application.units.values() if unit.life != "alive"]
    # Juju scales the StatefulSet only when all units that are being removed are dead.
    if leaving and all(unit.life == "dead" for unit in leaving):
        for unit in leaving:
            del application.units[unit.name]


def _shape(model: Model) -> tuple[object, ...]:
    return (
        [(a.name, a.life, [(u.name, u.life) for u in a.units.values()])
         for a in model.applications.values()],
        [(key, r.life, tuple(r.scope)) for key, r in model.relations.items()],
    )  # fmt: skip
