"""Parse a hook tool's arguments the way Juju's commands do, and print in its formats."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


class ToolError(Exception):
    """A hook tool's failure: `ERROR <message>` on stderr and an exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass
class Arguments:
    """Parsed arguments: flags by long name, and the rest in order."""

    flags: dict[str, str] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)

    def has(self, flag: str) -> bool:
        """Whether a boolean flag is on."""
        return self.flags.get(flag, "false").lower() == "true"

    def first(self, default: str = "") -> str:
        """The first positional argument."""
        return self.rest[0] if self.rest else default


ALIASES = {"r": "relation", "o": "output", "l": "log-level"}


def parse(argv: Sequence[str], *, values: str = "", switches: str = "") -> Arguments:
    """Parse flags anywhere among positional arguments; `--` ends them.

    Args:
        argv: The arguments after the tool's name.
        values: Names of flags that take a value, separated by spaces.
        switches: Names of boolean flags; `--app` and `--app=false` both work.
    """
    known = {**dict.fromkeys(values.split(), True), **dict.fromkeys(switches.split(), False)}
    known |= {"format": True, "output": True}
    result = Arguments()
    words = iter(argv)
    for word in words:
        if word == "--":
            result.rest.extend(words)
            break
        if not word.startswith("-") or word == "-":
            result.rest.append(word)
            continue
        name, has_equals, value = word.lstrip("-").partition("=")
        name = ALIASES.get(name, name)
        if name not in known:
            raise ToolError(f"flag provided but not defined: {word.partition('=')[0]}", 2)
        if not has_equals:
            value = next(words, None) if known[name] else "true"
        if value is None:
            raise ToolError(f"flag needs an argument: {word}", 2)
        result.flags[name] = value
    return result


def render(value: Any, arguments: Arguments) -> str:
    """Print a value as `--format` says; without it, plainly."""
    style = arguments.flags.get("format", "smart")
    if style == "json":
        return json.dumps(value)
    if style not in ("smart", "yaml"):
        raise ToolError(f'invalid value "{style}" for option --format: unknown format', 2)
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(str(item) for item in value)
    if isinstance(value, dict):
        return "\n".join(f"{key}: {json.dumps(item)}" for key, item in sorted(value.items()))
    return str(value)
