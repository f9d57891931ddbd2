"""Which contract this is: programs that keep to another one would misunderstand each other.

The word is made of what passes between the two: the options of the service, the settings of the
pods, the answers and the charm's facts, each field with its name and type and whether it may be
left out, and the words that a field may hold. What a text says about them does not count, nor does
a default.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import types
from collections.abc import Iterable, Iterator
from typing import Literal, get_args, get_origin

from . import answers, charm_facts, namespaces, pods, seen, service


def digest(modules: Iterable[types.ModuleType]) -> str:
    """Return the word for what some modules declare; their order says nothing."""
    lines = sorted(line for module in modules for line in _shape(module))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]


def _shape(module: types.ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if get_origin(value) is Literal:
            yield f"{name}: {', '.join(get_args(value))}"
        elif isinstance(value, type) and issubclass(value, enum.StrEnum):
            yield f"{name}: {', '.join(value)}"
        elif isinstance(value, type) and dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                yield f"{name}.{field.name}: {field.type}{' …' * _is_optional(field)}"


def _is_optional(field: dataclasses.Field[object]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


SCHEMA = digest((answers, charm_facts, namespaces, pods, seen, service))
"""Of this program; the charm and its image need the same."""
