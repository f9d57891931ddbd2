"""The identity of the contract: programs with different contracts misunderstand each other.

The digest covers the data that the two programs exchange: the service's options, the pods'
settings, the answers and the charm's facts. Of each field it covers the name, the type, the
allowed words and whether the field may be omitted. Docstrings and default values do not count.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import types
from collections.abc import Iterable, Iterator
from typing import Literal, get_args, get_origin

from . import answers, charm_facts, namespaces, pods, seen, service


def compute_digest(modules: Iterable[types.ModuleType]) -> str:
    """Return the digest of the modules' declarations, in any order."""
    lines = sorted(line for module in modules for line in _describe_shape(module))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]


def _describe_shape(module: types.ModuleType) -> Iterator[str]:
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


SCHEMA = compute_digest((answers, charm_facts, namespaces, pods, seen, service))
"""The contract of this program; the charm and its image need the same."""
