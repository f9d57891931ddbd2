"""The templates' engine."""

from __future__ import annotations

import functools
import json
import pathlib
import re
from typing import Any

import jinja2


def _to_yaml(value: Any) -> str:
    """Write a value so that YAML reads it back as it was.

    JSON's own escapes are surrogate pairs beyond the basic plane, which YAML takes for two
    characters.
    """
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda match: f"\\U{ord(match[0]):08x}", text)


@functools.cache
def environment(folder: pathlib.Path) -> jinja2.Environment:
    """Return what compiles the templates of a folder, and knows the filter `tojson`."""
    # The templates are YAML: values pass through `tojson`, so nothing is escaped as HTML.
    environment = jinja2.Environment(  # noqa: S701
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["tojson"] = _to_yaml  # pyright: ignore[reportUnknownMemberType]
    return environment
