"""Shared parts of both small API servers: paths, resource versions, selectors and errors."""

from __future__ import annotations

import copy
import re
from typing import Any, NamedTuple

Object = dict[str, Any]

_ADDRESS = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<part>[^/]+))?"
)


class Address(NamedTuple):
    """The path of an object or of a kind."""

    api_version: str
    plural: str
    namespace: str
    name: str
    """Empty for all of them."""
    part: str
    """`log` or `exec`, say; empty for the object itself."""

    @classmethod
    def of(cls, path: str) -> Address:
        """Read the path of a request."""
        match = _ADDRESS.fullmatch(path)
        assert match, path
        names = (match[key] or "" for key in ("plural", "namespace", "name", "part"))
        return cls(match["core"] or match["group"], *names)


class Objects:
    """Objects by their keys, each with a version that grows with every write."""

    def __init__(self) -> None:
        self.objects: dict[Any, Object] = {}
        self.version = 100

    def keep(self, key: Any, item: Object) -> Object:
        """Create or replace an object; what is replaced stays itself."""
        self.version += 1
        metadata = item["metadata"]
        if before := self.objects.get(key):
            metadata.setdefault("uid", before["metadata"]["uid"])
        metadata.setdefault("uid", f"uid-{self.version}")
        metadata["resourceVersion"] = str(self.version)
        self.objects[key] = item
        return item


def has_labels(item: Object, selector: str) -> bool:
    """Tell whether an object is selected by `a=b,c`, as requests write it."""
    labels = item["metadata"].get("labels", {})
    for part in filter(None, selector.split(",")):
        key, equals, value = part.partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    return True


def refusal(code: int, message: str, reason: str = "") -> Object:
    """Write the answer to what is not done."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return {**status, "message": message, **({"reason": reason} if reason else {})}


def merged(live: Any, patch: Any) -> Any:
    """Merge a patch into an object (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(live) if isinstance(live, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def without(live: Any, applied: Any, wanted: Any) -> Any:
    """Take away what the same manager applied before and does not want any more."""
    if not isinstance(live, dict) or not isinstance(applied, dict):
        return live
    return {
        key: without(value, applied.get(key), (wanted or {}).get(key))
        for key, value in live.items()
        if key not in applied or key in (wanted or {})
    }
