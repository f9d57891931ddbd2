"""Text that others wrote, read as YAML or JSON within limits.

What is too long, too deep or too much is refused before it costs time or memory, and so is what
only bombs need: aliases, merge keys and tags of YAML. Nothing here calls itself, so nothing runs
out of stack.
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
_MISSING: Any = object()
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
        return _Builder(yaml.SafeLoader(text)).build()
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


class _Builder:
    """Builds a value from the parser's events, with a stack of its own."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        # The library's own annotations leave most of it unknown.
        self._loader: Any = loader
        self._result: Any = _MISSING
        self._open: list[Any] = []
        self._keys: list[Any] = []
        self._count = 0

    def build(self) -> Any:
        while (event := self._loader.get_event()) is not None:
            self._take(event)
        return None if self._result is _MISSING else self._result

    def _take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise DocumentError("has an alias or an anchor: write each value out")
        if isinstance(event, yaml.ScalarEvent):
            self._add(self._scalar(event))
        elif isinstance(event, yaml.CollectionStartEvent):
            self._start([] if isinstance(event, yaml.SequenceStartEvent) else {}, event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
            self._keys.pop()

    def _start(self, value: Any, event: yaml.CollectionStartEvent) -> None:
        if not event.implicit:
            raise DocumentError(f"has the tag {str(event.tag)[:40]!r}")
        if len(self._open) >= DEEPEST:
            raise DocumentError(_TOO_DEEP)
        if self._open and isinstance(self._open[-1], dict) and self._keys[-1] is _MISSING:
            raise DocumentError("has a list or a mapping as a key")
        self._add(value)
        self._open.append(value)
        self._keys.append(_MISSING)

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        tag: str | None = event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        elif tag != f"{_TAG}str":
            raise DocumentError(f"has the tag {tag[:40]!r}")
        if tag not in _SCALARS:
            raise DocumentError(f"has {event.value[:40]!r}, which YAML gives a meaning: quote it")
        if tag == f"{_TAG}str":
            return whole(event.value)
        if len(event.value) > bounds.LONGEST_NUMBER:
            raise DocumentError(f"has a number of {len(event.value)} characters")
        return self._loader.construct_object(yaml.ScalarNode(str(tag), event.value))

    def _add(self, value: Any) -> None:
        self._count += 1
        if self._count > MOST_VALUES:
            raise DocumentError(_TOO_MANY)
        if not self._open:
            if self._result is not _MISSING:
                raise DocumentError("is more than one document")
            self._result = value
        elif isinstance(self._open[-1], list):
            cast("list[Any]", self._open[-1]).append(value)
        elif self._keys[-1] is _MISSING:
            self._keys[-1] = value
        else:
            self._open[-1][self._keys[-1]] = value
            self._keys[-1] = _MISSING
