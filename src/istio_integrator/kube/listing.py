"""Lists that the API server sends: what each object must have, and what of definitions is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict, cast

import msgspec

from integrator_contract import bounded
from istio_integrator.kube import fences

TOO_DEEP = f"it nests more than {bounded.DEEPEST} lists or mappings"


def problem(obj: dict[str, Any], *, is_namespaced: bool) -> str:
    """Say what an object lacks that all have; empty: nothing.

    Whatever the API server keeps, it has given a name and, as far as there are any, labels and
    annotations that are texts. What else an object says, no schema may have seen.
    """
    found = obj.get("metadata")
    metadata = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    for key in ("name", "namespace") if is_namespaced else ("name",):
        if not isinstance(metadata.get(key), str):
            return f"it has no {key}"
    for key in ("labels", "annotations"):
        if not _is_texts(metadata.get(key) or {}):
            return f"its {key} are no texts"
    return "" if bounded.is_shallow(obj) else TOO_DEEP


def _is_texts(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    pairs = cast("dict[Any, Any]", value).items()
    return all(isinstance(key, str) and isinstance(text, str) for key, text in pairs)


class _Spec(TypedDict, total=False):
    conversion: dict[str, Any]


class _Definition(TypedDict, total=False):
    metadata: dict[str, Any]
    spec: _Spec


class _Identity(TypedDict):
    metadata: dict[str, Any]


class _Definitions(TypedDict, total=False):
    items: list[msgspec.Raw] | None


def definitions(text: bytes) -> Iterable[_Definition]:
    """Read CustomResourceDefinitions without their schemas, which are megabytes of a cluster."""
    for raw in msgspec.json.decode(text, type=_Definitions).get("items") or ():
        try:
            yield msgspec.json.decode(raw, type=_Definition)
        except msgspec.ValidationError as error:
            metadata = msgspec.json.decode(raw, type=_Identity)["metadata"]
            fences.note(f"CustomResourceDefinition {metadata.get('name')}", str(error))
