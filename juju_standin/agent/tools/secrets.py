"""The secret tools. New and changed secrets reach others only at the commit."""

import re
import secrets as randomness
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..context import HookContext  # noqa: TID252  the package is copied under other names
from ..flags import Arguments, ToolError, parse, render  # noqa: TID252  the package is copied under other names

KEY = re.compile(r"^[a-z](?:-?[a-z0-9]){2,}$")
MAX_CONTENT = 1024 * 1024
"""Bytes that Juju takes for a secret."""

OPTIONS = "label description expire rotate owner"
ALPHABET = string.ascii_lowercase + string.digits


def secret_add(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Create a secret and print its address."""
    arguments = parse(argv, values=OPTIONS)
    number = "".join(randomness.choice(ALPHABET) for _ in range(20))
    content = _content(arguments.rest)
    if not content:
        raise ToolError("missing secret value", 2)
    _write(context, "add", f"secret:{number}", arguments, content)
    return f"secret:{number}"


def secret_set(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Change a secret: new content makes a new revision."""
    arguments = parse(argv, values=OPTIONS)
    _write(context, "set", _address(arguments), arguments, _content(arguments.rest[1:]))
    return ""


def secret_get(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """The content at the tracked revision, or the latest with --refresh or --peek."""
    arguments = parse(argv, values="label", switches="refresh peek")
    uncommitted = _own_uncommitted(context, arguments)
    if uncommitted is not None:
        content = uncommitted
    else:
        content = context.controller.call(
            "secret_content",
            secret=_address(arguments) if arguments.rest else "",
            label=arguments.flags.get("label", ""),
            refresh=arguments.has("refresh"),
            peek=arguments.has("peek"),
        )
    key = arguments.rest[1] if len(arguments.rest) > 1 else ""
    return render(content[key] if key else content, arguments)


def secret_info_get(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """What the owner may know about a secret."""
    arguments = parse(argv, values="label")
    secret = _address(arguments) if arguments.rest else ""
    label = arguments.flags.get("label", "")
    return render(context.controller.call("secret_info", secret=secret, label=label), arguments)


def secret_ids(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Secrets that this unit or its application owns."""
    return render(context.controller.call("secret_ids"), parse(argv))


def secret_remove(context: HookContext, argv: Sequence[str], _stdin: str) -> str:
    """Remove a secret or one revision of it at the commit."""
    arguments = parse(argv, values="revision")
    revision = int(arguments.flags.get("revision", "0"))
    context.writes.secrets.append(
        {"change": "remove", "secret": _address(arguments), "revision": revision}
    )
    return ""


def _write(
    context: HookContext,
    change: str,
    secret: str,
    arguments: Arguments,
    content: dict[str, str],
) -> None:
    owner = arguments.flags.get("owner", "application")
    if owner == "application" and not context.is_leader():
        raise ToolError("this unit is not the leader")
    kept = {key: arguments.flags[key] for key in OPTIONS.split() if key in arguments.flags}
    context.writes.secrets.append(
        {**kept, "change": change, "secret": secret, "owner": owner, "content": content}
    )


def _own_uncommitted(context: HookContext, arguments: Arguments) -> dict[str, str] | None:
    label = arguments.flags.get("label", "")
    for write in reversed(context.writes.secrets):
        is_meant = (
            write["secret"] == _address(arguments)
            if arguments.rest
            else label and write.get("label") == label
        )
        if is_meant and write.get("content"):
            return write["content"]
    return None


def _address(arguments: Arguments) -> str:
    if not arguments.rest:
        raise ToolError("missing secret URI", 2)
    given = arguments.rest[0]
    return f"secret:{given.removeprefix('secret:').rpartition('/')[2]}"


def _content(words: Sequence[str]) -> dict[str, str]:
    content: dict[str, Any] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator:
            raise ToolError(f'key value "{word}" not valid', 2)
        name, _, kind = key.partition("#")
        if not KEY.match(name):
            raise ToolError(f'key "{name}" not valid', 2)
        content[name] = Path(value).read_text() if kind == "file" else value
    if sum(len(value.encode()) for value in content.values()) > MAX_CONTENT:
        raise ToolError("secret content exceeds the limit of 1048576 bytes")
    return content


TOOLS = {
    "secret-add": secret_add,
    "secret-set": secret_set,
    "secret-get": secret_get,
    "secret-info-get": secret_info_get,
    "secret-ids": secret_ids,
    "secret-remove": secret_remove,
}
