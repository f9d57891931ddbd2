"""YAML of pods and their annotations, read by PyYAML's safe loader within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from integrator_contract.bounds import RefusedError
from sidecar_lifecycle.model.bounded import DEEPEST, too_deep

LONGEST = 1024 * 1024
"""Characters of a text; JSON may be longer."""
_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""With libyaml where it is installed."""


class _Loader(_BASE):
    """Leaves a timestamp as text."""


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _BASE.construct_yaml_str)


def documents(text: str) -> Iterator[object]:
    """Yield the documents of a text.

    Raises:
        RefusedError: It is no YAML, or beyond a bound.
    """
    if len(text) > LONGEST:
        raise RefusedError(f"is YAML of more than {LONGEST // 1024} KiB: give less, or JSON")
    try:
        _check(text)
        yield from yaml.load_all(text, Loader=_Loader)
    except RefusedError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        line = " ".join(str(error).split())[:300]
        raise RefusedError(f"is neither JSON nor YAML: {line}") from error


def _check(text: str) -> None:
    """Refuse aliases, because merges of them grow without bound, and deep nesting."""
    depth = 0
    event: Any
    for event in yaml.parse(text, Loader=_BASE):
        if isinstance(event, yaml.AliasEvent):
            raise RefusedError(f"has the alias *{event.anchor}: write out its value")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise too_deep()
