"""Tools whose writes wait for the commit: controller-held state and ports; and storage."""

import re
from collections.abc import Sequence

from ..context import HookContext  # noqa: TID252  the package is copied under other names
from ..flags import ToolError, parse, render  # noqa: TID252  the package is copied under other names
from .relations import string_mapping

MAX_KEY = 256
MAX_VALUE = 64 * 1024
MAX_TOTAL = 2 * 1024 * 1024
"""Bytes that Juju's quotas allow for a key, a value and a unit's whole state."""

PORT = re.compile(r"^(?:(\d+)(?:/(tcp|udp))?|icmp)$")


def state_get(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """One value, or everything."""
    arguments = parse(argv)
    key = arguments.first()
    values = context.state()
    return render(values.get(key) if key and key != "-" else values, arguments)


def state_set(context: HookContext, argv: Sequence[str], stdin: str) -> str:
    """Keep values for the commit."""
    arguments = parse(argv, values="file")
    values = string_mapping(stdin) if arguments.flags.get("file") == "-" else {}
    values.update(dict(word.split("=", 1) for word in arguments.rest))
    for key, value in values.items():
        if len(key.encode()) > MAX_KEY or len(value.encode()) > MAX_VALUE:
            raise ToolError(f"state of {key!r} exceeds the quota limit")
    merged = {**context.state(), **values}
    if sum(len(k.encode()) + len(v.encode()) for k, v in merged.items()) > MAX_TOTAL:
        raise ToolError("max allowed state size (2097152) exceeded")
    context.writes.state.update(values)
    return ""


def state_delete(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Delete a key at the commit."""
    context.writes.state[parse(argv).first()] = None
    return ""


def open_port(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Open a port of the application's Service at the commit."""
    return _change_port(context, argv, "open")


def close_port(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Close a port of the application's Service at the commit."""
    return _change_port(context, argv, "close")


def opened_ports(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """The unit's open ports, without what this hook changes."""
    return render(context.controller.call("opened_ports"), parse(argv, switches="endpoints"))


def storage_list(_context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Nothing: the stand-in has no storage."""
    return render([], parse(argv))


def no_storage(_context: HookContext, _argv: Sequence[str], _stdin: str) -> str:
    """Refused: the stand-in has no storage."""
    raise ToolError("storage not found")


def _change_port(context: HookContext, argv: Sequence[str], change: str) -> str:
    port = parse(argv, values="endpoints").first()
    match = PORT.match(port)
    if match is None:
        raise ToolError(f'invalid port or port range "{port}"', 2)
    text = f"{match[1]}/{match[2] or 'tcp'}" if match[1] else "icmp"
    context.writes.ports.append((change, text))
    return ""


TOOLS = {
    "state-get": state_get,
    "state-set": state_set,
    "state-delete": state_delete,
    "open-port": open_port,
    "close-port": close_port,
    "opened-ports": opened_ports,
    "storage-list": storage_list,
    "storage-get": no_storage,
    "storage-add": no_storage,
}
