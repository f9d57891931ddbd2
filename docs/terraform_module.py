"""The Terraform modules: options and endpoints, and the tables of each README.md."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import hcl2
import tables
import yaml


def variables(root: pathlib.Path) -> str:
    """Return terraform/variables.tf with the options of config.yaml in its list."""
    names = yaml.safe_load((root / "config.yaml").read_text())["options"]
    known = "".join(f'      "{name}",\n' for name in sorted(names))
    text = (root / "terraform" / "variables.tf").read_text()
    return re.sub(r'(contains\(\[\n)(?: +"[^"\n]+",\n)*', rf"\g<1>{known}", text)


def outputs(root: pathlib.Path) -> str:
    """Return terraform/outputs.tf with the endpoints of metadata.yaml in its maps."""
    metadata = yaml.safe_load((root / "metadata.yaml").read_text())
    text = (root / "terraform" / "outputs.tf").read_text()
    for side in ("provides", "requires"):
        keys = {name.replace("-", "_"): name for name in sorted(metadata[side])}
        width = max(map(len, keys))
        lines = "".join(f'    {key:<{width}} = "{name}"\n' for key, name in keys.items())
        before = rf'(output "{side}" {{\n[^}}]*value = {{\n)(?: +\w+ += "[^"\n]+"\n)*'
        text = re.sub(before, rf"\g<1>{lines}", text)
    return text


def readme(module: pathlib.Path) -> str:
    """Return a module's README.md with its variables and outputs in the tables."""
    inputs = [
        (f"`{name}`", f"`{_type(body)}`", _default(body), _plain(body["description"]))
        for name, body in _blocks(module, "variable")
    ]
    found = [
        (f"`{name}`", _plain(body["description"])) for name, body in _blocks(module, "output")
    ]
    text = (module / "README.md").read_text()
    for head, rows in (
        (("variable", "type", "default", "meaning"), sorted(inputs)),
        (("output", "meaning"), found),
    ):
        listed = tables.table(head, rows)
        text = re.sub(rf"\| {head[0]} \|.*\n(?:\|.*\n)+", lambda _, new=listed: new, text, count=1)
    return text


def _blocks(module: pathlib.Path, kind: str) -> list[tuple[str, dict[str, Any]]]:
    with (module / f"{kind}s.tf").open() as file:
        loaded = hcl2.load(file)[kind]
    return [(name.strip('"'), body) for block in loaded for name, body in block.items()]


def _type(body: dict[str, Any]) -> str:
    """Return a variable's type, of an object only that: its fields are in variables.tf."""
    return _plain(body["type"]).partition("({")[0]


def _default(body: dict[str, Any]) -> str:
    if "default" not in body:
        return "required"
    found = body["default"]
    return f"`{_plain(found) if isinstance(found, str) else json.dumps(found)}`"


def _plain(value: Any) -> str:
    text = str(value).removeprefix("${").removesuffix("}")
    return re.sub(r'^"(.*)"$', r"\1", text).replace('\\"', '"')
