"""The templates' engine, whose work on a template is kept from hook to hook."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import pathlib
import re
from typing import Any

import jinja2

logger = logging.getLogger(__name__)


def _to_yaml(value: Any) -> str:
    """Write a value so that YAML reads it back as it was.

    JSON's own escapes are surrogate pairs beyond the basic plane, which YAML takes for two
    characters.
    """
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda match: f"\\U{ord(match[0]):08x}", text)


class _Compiled(jinja2.FileSystemBytecodeCache):
    """Templates as an earlier hook compiled them, in a folder of the user's own below `/tmp`.

    To compile those of one hook takes as long as all else that it does.
    """

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        """Keep a compiled template, where there is room."""
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)

    @classmethod
    def open(cls) -> _Compiled | None:
        """Return what is there; None where no folder is safe from other users."""
        try:
            return cls()
        except (OSError, RuntimeError) as error:
            logger.info("Templates are compiled in each hook: %s", error)
            return None


@functools.cache
def environment(folder: pathlib.Path) -> jinja2.Environment:
    """Return what compiles the templates of a folder, and knows the filter `tojson`."""
    # The templates are YAML: values pass through `tojson`, so nothing is escaped as HTML.
    environment = jinja2.Environment(  # noqa: S701
        loader=jinja2.FileSystemLoader(folder),
        bytecode_cache=_Compiled.open(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["tojson"] = _to_yaml  # pyright: ignore[reportUnknownMemberType]
    return environment
