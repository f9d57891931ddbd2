"""Text that others wrote, read as YAML or JSON within limits.

What is too long, too deep or too much is refused before it costs time or memory, and so is what
only bombs need: aliases, merge keys and tags of YAML.
"""

from __future__ import annotations

from typing import Any, cast

import yaml

from integrator_contract import bounds
from integrator_contract.bounds import RefusedError as DocumentError

LONGEST = 65536
"""Characters of a document; those of Kubeflow's charms have some hundred."""
LONGEST_OBJECT = 1 << 20
"""Characters of one that fills a whole ConfigMap or option: etcd takes no larger object."""
DEEPEST = 64
"""Lists and mappings within each other; nothing that is read here has ten."""
MOST_VALUES = 20_000
"""Values in a document, for some 5 MB of memory."""

_TAG = "tag:yaml.org,2002:"
_SCALARS = frozenset(
    f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "timestamp")
)
_LONGEST_REASON = 200
"""Characters of what a parser says, which quotes the document."""


def read_yaml(text: str, *, longest: int = LONGEST) -> Any:
    """Read one YAML document; None where there is none.

    Raises:
        DocumentError: It is beyond the limits, or no YAML.
    """
    _check_length(text, longest)
    try:
        # libyaml would be faster and refuses characters that JSON writes as two escapes.
        return _Loader(text).get_single_data()
    except DocumentError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise DocumentError(f"is no YAML: {reason}") from error


def read_json(text: str, *, longest: int = LONGEST) -> Any:
    """Read one JSON document.

    Raises:
        DocumentError: It is beyond the limits, or no JSON.
    """
    _check_length(text, longest)
    try:
        value = bounds.DECODER.decode(text)
    except DocumentError:
        raise
    except RecursionError as error:
        raise DocumentError(_TOO_DEEP) from error
    except ValueError as error:
        raise DocumentError(f"is no JSON: {error}") from error
    _check_shape(value)
    return value


_TOO_DEEP = f"nests more than {DEEPEST} lists or mappings"
_TOO_MANY = f"has more than {MOST_VALUES} values"


def _check_length(text: str, longest: int) -> None:
    if len(text) > longest:
        raise DocumentError(f"has {len(text)} characters, more than {longest}")


def _check_shape(value: Any) -> None:
    if not bounds.is_shallow(value, DEEPEST):
        raise DocumentError(_TOO_DEEP)
    count = 0
    rest: list[object] = [value]
    while rest:
        found = rest.pop()
        count += 1
        if count > MOST_VALUES:
            raise DocumentError(_TOO_MANY)
        if isinstance(found, dict):
            rest += cast("dict[str, Any]", found)
            rest += cast("dict[str, Any]", found).values()
        elif isinstance(found, list):
            rest += cast("list[Any]", found)
        elif isinstance(found, str):
            whole(found)


def whole(text: str) -> str:
    """Join the halves of characters that JSON writes as two escapes and YAML leaves apart.

    Raises:
        DocumentError: There is one half only, which nobody could write again.
    """
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise DocumentError(f"has half a character in {text[:40]!r}") from error


class _Loader(yaml.SafeLoader):
    """Refuses each node that only bombs need, or that is beyond the limits, before it is built."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._count = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # The library's own annotations leave it unknown.
        event: Any = cast("Any", self).peek_event()
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            raise DocumentError("has an alias or an anchor: write each value out")
        if event.tag not in (None, "!", f"{_TAG}str"):
            raise DocumentError(f"has the tag {event.tag[:40]!r}")
        self._count += 1
        if self._count > MOST_VALUES:
            raise DocumentError(_TOO_MANY)
        self._depth += isinstance(event, yaml.CollectionStartEvent)
        if self._depth > DEEPEST:
            raise DocumentError(_TOO_DEEP)
        node = super().compose_node(parent, index)
        self._depth -= isinstance(event, yaml.CollectionStartEvent)
        if isinstance(node, yaml.ScalarNode):
            _check_scalar(node)
        return node


def _check_scalar(node: yaml.ScalarNode) -> None:
    if node.tag not in _SCALARS:
        raise DocumentError(f"has {node.value[:40]!r}, which YAML gives a meaning: quote it")
    if node.tag == f"{_TAG}str":
        node.value = whole(node.value)
    elif len(node.value) > bounds.LONGEST_NUMBER:
        raise DocumentError(f"has a number of {len(node.value)} characters")
