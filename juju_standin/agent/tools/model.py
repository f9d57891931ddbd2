"""Tools about the unit and its model: configuration, status, leadership, network, log."""

from collections.abc import Sequence

from ..context import HookContext  # noqa: TID252  the package is copied under other names
from ..flags import ToolError, parse, render  # noqa: TID252  the package is copied under other names
from .relations import chosen_relation

SETTABLE = ("maintenance", "blocked", "waiting", "active")


def config_get(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """The application's configuration; options without a value are absent."""
    arguments = parse(argv, switches="all a")
    values = context.config()
    key = arguments.first()
    return render(values.get(key) if key else values, arguments)


def is_leader(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Whether this unit leads for the next 30 seconds at least."""
    return render(context.is_leader(), parse(argv))


def status_set(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Set the unit's status at once, whatever becomes of the hook."""
    arguments = parse(argv, switches="application")
    if arguments.has("application"):
        raise ToolError("the stand-in has no status of applications")
    status, message = arguments.first(), " ".join(arguments.rest[1:])
    if status not in SETTABLE:
        expected = ", ".join(SETTABLE)
        raise ToolError(f'invalid status "{status}", expected one of [{expected}]', 2)
    context.controller.call("set_status", status=status, message=message)
    return ""


def juju_log(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Write to the model's log, which is sent in the background."""
    arguments = parse(argv, values="log-level", switches="debug")
    level = "DEBUG" if arguments.has("debug") else arguments.flags.get("log-level", "INFO")
    context.log(level.upper(), "juju-log", " ".join(arguments.rest))
    return ""


def network_get(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Bind on the pod's address, ingress by the application's Service."""
    arguments = parse(
        argv, values="relation", switches="bind-address ingress-address egress-subnets"
    )
    if "relation" in arguments.flags:
        chosen_relation(context, arguments)
    return render(context.controller.call("network"), arguments)


def goal_state(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Units and relations as they are meant to become."""
    return render(context.controller.call("goal_state"), parse(argv))


TOOLS = {
    "config-get": config_get,
    "is-leader": is_leader,
    "status-set": status_set,
    "juju-log": juju_log,
    "network-get": network_get,
    "goal-state": goal_state,
}
