"""Read a packed charm."""

import zipfile
from pathlib import Path
from typing import Any

import yaml

from .calls import CallError

PARTS = {"metadata": "metadata.yaml", "config": "config.yaml", "actions": "actions.yaml"}
TYPES = {"string": str, "int": int, "float": (int, float), "boolean": bool, "secret": str}


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return a packed charm's metadata, configuration options and actions."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        if "metadata.yaml" not in names:
            raise CallError(f"{path}: not a charm: no metadata.yaml")
        raw = {
            part: yaml.safe_load(archive.read(file)) or {} if file in names else {}
            for part, file in PARTS.items()
        }
    raw["config"] = raw["config"].get("options") or {}
    return raw


def settings(options: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
    """Convert the command line's values to the types that the charm defines.

    Raises:
        CallError: for an unknown option or a value of another type.
    """
    result: dict[str, Any] = {}
    for name, text in given.items():
        if name not in options:
            raise CallError(f'unknown option "{name}"')
        kind = options[name].get("type", "string")
        value: Any = text if kind in ("string", "secret") else yaml.safe_load(text)
        if not isinstance(value, TYPES[kind]) or (kind != "boolean" and isinstance(value, bool)):
            raise CallError(f'option "{name}" expected {kind}, got "{text}"')
        result[name] = value
    return result
