"""Lists that the API server sends: what each object must have, and lists no decoder can follow.

Decoders follow lists and mappings within each other by calling themselves, and one object that
nests more than they can would cost the whole list. Such a list is taken apart without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple, TypedDict, cast

import msgspec

from integrator_contract import bounds
from istio_integrator.kube import documents, fences

TOO_DEEP = f"it nests more than {documents.DEEPEST} lists or mappings"

_TOKEN = re.compile(rb'("(?:[^"\\]|\\.)*+")(\s*:)?|[\[\]{}]', re.DOTALL)
_ITEM = (b"{", b"[", b"{")
"""What is open around the fields of an item."""


class Item(NamedTuple):
    """One object of the list."""

    text: bytes
    depth: int
    """Lists and mappings within each other."""
    namespace: str
    name: str


def problem(obj: dict[str, Any], *, is_namespaced: bool) -> str:
    """Say what an object lacks that all have; empty: nothing.

    Whatever the API server keeps, it has given a name and, as far as there are any, labels and
    annotations that are texts. What else an object says, no schema may have seen.

    Args:
        obj: As it was answered.
        is_namespaced: Whether its kind is.
    """
    found = obj.get("metadata")
    metadata = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    for key in ("name", "namespace") if is_namespaced else ("name",):
        if not isinstance(metadata.get(key), str):
            return f"it has no {key}"
    for key in ("labels", "annotations"):
        if not _is_texts(metadata.get(key) or {}):
            return f"its {key} are no texts"
    return "" if bounds.is_shallow(obj, documents.DEEPEST) else TOO_DEEP


def _is_texts(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    pairs = cast("dict[Any, Any]", value).items()
    return all(isinstance(key, str) and isinstance(text, str) for key, text in pairs)


def items(text: bytes) -> Iterable[Item]:
    """Take a list apart; what is no list of objects has none.

    Args:
        text: The API server's answer, in JSON.
    """
    opened: list[bytes] = []
    start = depth = 0
    key = field = b""
    metadata: dict[bytes, bytes] = {}
    for match in _TOKEN.finditer(text):
        token = match[0]
        if match[2]:
            key = match[1]
        elif match[1]:
            if len(opened) == 4 and field == b'"metadata"':
                metadata[key] = token
        elif token in b"[{":
            opened.append(token)
            depth = max(depth, len(opened) - 2)
            if len(opened) == 3:
                start, depth, metadata = match.start(), 1, {}
            elif len(opened) == 4:
                field = key
        elif opened:
            is_item = tuple(opened) == _ITEM
            opened.pop()
            if is_item:
                namespace, name = map(metadata.get, (b'"namespace"', b'"name"'))
                yield Item(text[start : match.end()], depth, _plain(namespace), _plain(name))


class _Spec(TypedDict, total=False):
    conversion: dict[str, Any]


class _Definition(TypedDict, total=False):
    metadata: dict[str, Any]
    spec: _Spec


class _Definitions(TypedDict, total=False):
    items: list[msgspec.Raw] | None


def definitions(text: bytes) -> Iterable[_Definition]:
    """Read CustomResourceDefinitions without their schemas, which are megabytes of a cluster.

    Args:
        text: The API server's list of them, in JSON.
    """
    for raw in msgspec.json.decode(text, type=_Definitions).get("items") or ():
        try:
            yield msgspec.json.decode(raw, type=_Definition)
        except msgspec.ValidationError as error:
            (item,) = items(b'{"items":[%s]}' % bytes(raw))
            fences.note(f"CustomResourceDefinition {item.name}", str(error))


def _plain(quoted: bytes | None) -> str:
    # Names in Kubernetes need no escapes.
    return (quoted or b"").strip(b'"').decode(errors="replace")
