"""The port tools, whose writes wait for the commit."""

import re
from collections.abc import Sequence

from ..context import HookContext  # noqa: TID252  the package is copied under other names
from ..flags import ToolError, parse, render  # noqa: TID252  the package is copied under other names

PORT = re.compile(r"^(?:(\d+)(?:/(tcp|udp))?|icmp)$")


def open_port(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Open a port of the application's Service at the commit."""
    return _change_port(context, argv, "open")


def close_port(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Close a port of the application's Service at the commit."""
    return _change_port(context, argv, "close")


def opened_ports(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """The unit's open ports, without what this hook changes."""
    return render(context.controller.call("opened_ports"), parse(argv, switches="endpoints"))


def _change_port(context: HookContext, argv: Sequence[str], change: str) -> str:
    port = parse(argv, values="endpoints").first()
    match = PORT.match(port)
    if match is None:
        raise ToolError(f'invalid port or port range "{port}"', 2)
    text = f"{match[1]}/{match[2] or 'tcp'}" if match[1] else "icmp"
    context.writes.ports.append((change, text))
    return ""


TOOLS = {
    "open-port": open_port,
    "close-port": close_port,
    "opened-ports": opened_ports,
}
