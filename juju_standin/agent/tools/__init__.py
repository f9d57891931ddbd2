"""Hook tools: each takes the hook's context, its arguments and its input, and returns text."""

from collections.abc import Callable, Sequence

from ..context import HookContext  # noqa: TID252  the package is copied under other names
from . import actions, model, ports, relations, secrets

Tool = Callable[[HookContext, Sequence[str], str], str]

TOOLS: dict[str, Tool] = {
    **relations.TOOLS,
    **model.TOOLS,
    **ports.TOOLS,
    **actions.TOOLS,
    **secrets.TOOLS,
}
