"""The action tools."""

import re
from collections.abc import Sequence
from typing import Any

from ..context import ActionRun, HookContext  # noqa: TID252  the package is copied under other names
from ..flags import ToolError, parse, render  # noqa: TID252  the package is copied under other names

KEY = re.compile(r"^[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$")
RESERVED = ("stdout", "stdout-encoding", "stderr", "stderr-encoding", "return-code")


def action_get(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """The action's parameters, or one of them by its dotted key."""
    action = _action(context)
    arguments = parse(argv)
    value: Any = action.parameters
    for part in arguments.first().split(".") if arguments.rest else ():
        value = value.get(part) if isinstance(value, dict) else None
    return render(value, arguments)


def action_set(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Keep results; dotted keys nest."""
    action = _action(context)
    for word in parse(argv).rest:
        key, separator, value = word.partition("=")
        if not separator:
            raise ToolError(f'argument "{word}" must be of the form key...=value', 2)
        if key in RESERVED:
            raise ToolError(f'cannot set reserved action key "{key}"', 2)
        parts = key.split(".")
        if not all(KEY.match(part) for part in parts):
            raise ToolError(
                f'key "{key}" must start and end with lowercase alphanumeric, '
                "and contain only lowercase alphanumeric, hyphens and periods",
                2,
            )
        _nest(action.results, parts, value)
    return ""


def action_fail(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Mark the action failed; it still runs to its end."""
    action = _action(context)
    action.failed = True
    action.message = " ".join(parse(argv).rest) or "action failed without reason given, check"
    return ""


def _nest(results: dict[str, Any], parts: list[str], value: str) -> None:
    for part in parts[:-1]:
        inner = results.get(part)
        if not isinstance(inner, dict):
            inner = results[part] = {}
        results = inner
    results[parts[-1]] = value


def _action(context: HookContext) -> ActionRun:
    if context.action is None:
        raise ToolError("not running an action")
    return context.action


TOOLS = {
    "action-get": action_get,
    "action-set": action_set,
    "action-fail": action_fail,
}
