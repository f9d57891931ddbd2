"""Watch a collection: list, watch, resume, and list again after 410 Gone."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic, Literal, TypeVar

import msgspec
import structlog

from integrator_contract import bounded
from sidecar_lifecycle.model import types

from . import client, errors
from .fence import Fence

T = TypeVar("T", bound=types.Object)
Kind = Literal["synced", "added", "modified", "deleted"]
Key = tuple[str, str]
"""Namespace and name."""

log = structlog.get_logger(__name__)

IDLE = 120.0
"""Seconds without data until the connection counts as dead; bookmarks come about every 60 s."""
LONGEST = 32 << 20
"""Limit of an event in bytes; by default etcd stores objects of up to 1.5 MB."""
ASK_AGAIN = 60.0
"""Seconds until a retry after 403 or 404."""


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One change of the collection.

    `synced` has no object. It follows the last object of every list. The object of `deleted` has
    only metadata, at least its name, namespace and uid.
    """

    kind: Kind
    object: T | None = None


class _Envelope(msgspec.Struct):
    type: str
    object: msgspec.Raw


_envelope = msgspec.json.Decoder(_Envelope).decode


@dataclass(slots=True)
class Watch(Generic[T]):
    """A watch of a collection that never ends.

    The namespace "*" means all namespaces, or a cluster-scoped resource. `concerns` may only test
    fields that never change in an object; the server evaluates the other selectors.
    """

    client: client.Client
    kind: type[T]
    _: KW_ONLY
    namespace: str = "*"
    labels: str = ""
    fields: str = ""
    concerns: Callable[[T], bool] = lambda _: True
    fence: Fence = field(default_factory=Fence)
    is_patient: bool = False
    """Whether 403 and 404 are retried: an administrator may add the permission or the CRD."""
    live: bool = False
    """Whether the collection is listed and the watch is open."""
    _version: str = ""
    """The resourceVersion to resume from; empty: the collection must be listed."""
    _known: dict[Key, str] = field(default_factory=dict[Key, str])
    """The UIDs of the reported objects, for tombstones after a relist."""
    _failures: int = 0
    """Consecutive failures since the last event."""

    async def changes(self) -> AsyncGenerator[Change[T]]:
        """Report all objects, then every change.

        Raises:
            StatusError: 403 or 404, unless `is_patient`. Other errors are retried forever.
        """
        try:
            while True:
                try:
                    async with contextlib.aclosing(self._follow_once()) as changes:
                        async for change in changes:
                            yield change
                    # The server ends a watch after minutes. A watch without events is a failure.
                    delay = errors.compute_delay(self._failures) if self._failures else 0.0
                    self._failures += 1
                except errors.KubeError as error:
                    delay = self._count_failure(error)
                    # A quiet watch usually ends with 410 Gone, which is not worth a warning.
                    if delay:
                        log.warning(
                            "watch interrupted",
                            resource=self._path,
                            error=str(error),
                            retry_in=round(delay, 2),
                        )
                await asyncio.sleep(delay)
        finally:
            self.live = False

    @property
    def _path(self) -> str:
        return client.make_path(self.kind, None if self.namespace == "*" else self.namespace)

    async def _follow_once(self) -> AsyncGenerator[Change[T]]:
        """List if needed, then watch until the server ends the watch."""
        if not self._version:
            async for change in self._list():
                yield change
        params = {
            "labelSelector": self.labels,
            "fieldSelector": self.fields,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(240, 360)),  # noqa: S311 - spreads the load
        }
        async with self.client.open_stream(self._path, params=params, idle=IDLE) as content:
            self.live = True
            while line := await content.readline(max_line_length=LONGEST):
                changes: list[Change[T]] = []
                with self.fence.isolate("decode", functools.partial(self._decode_name, line)):
                    changes = self._read_event(line)
                self._failures = 0
                for change in changes:
                    yield change

    async def _list(self) -> AsyncGenerator[Change[T]]:
        listed: set[Key] = set()
        version = ""
        async for listed_at, items in self.client.list_pages(
            self._path,
            self.kind,
            self.fence,
            labels=self.labels,
            fields=self.fields,
            concerns=self.concerns,
        ):
            version = listed_at
            for item in items:
                listed.add(_make_key(item))
                for change in self._note_object(item):
                    yield change
        self._version = version
        for key in [key for key in self._known if key not in listed]:
            yield self._make_deletion(key, self._known.pop(key))
        self.live = True
        yield Change("synced")

    def _read_event(self, line: bytes) -> list[Change[T]]:
        event = bounded.cut_if_deep(_envelope, line)
        if event.type == "ERROR":
            status = errors.read_status(bytes(event.object))
            raise errors.StatusError(status.code or 500, status.reason, status.message)
        if event.type in ("BOOKMARK", "DELETED"):
            # The name is enough, and it is there even if the rest can't be decoded.
            item = client.decode_name(self.kind, event.object)
        else:
            item = types.decode_json(event.object, self.kind)
        self._version = item.metadata.resourceVersion or ""
        if event.type == "BOOKMARK":
            return []
        if event.type == "DELETED":
            self._known.pop(_make_key(item), None)
            return [Change("deleted", item)]
        return self._note_object(item) if self.concerns(item) else []

    def _note_object(self, item: T) -> list[Change[T]]:
        key, uid = _make_key(item), item.metadata.uid
        before = self._known.get(key)
        self._known[key] = uid
        if before == uid:
            return [Change("modified", item)]
        gone = [] if before is None else [self._make_deletion(key, before)]
        return [*gone, Change("added", item)]

    def _make_deletion(self, key: Key, uid: str) -> Change[T]:
        namespace, name = key
        meta = types.ObjectMeta(name=name, namespace=namespace or None, uid=uid)
        return Change("deleted", self.kind(metadata=meta))

    def _decode_name(self, line: bytes) -> T:
        return client.decode_name(self.kind, bounded.cut_if_deep(_envelope, line).object)

    def _count_failure(self, error: errors.KubeError) -> float:
        """Count a failure and return the seconds until the next try, or raise the failure."""
        self.live = False
        self._failures += 1
        if not isinstance(error, errors.StatusError):
            return errors.compute_delay(self._failures)
        if error.code in (403, 404):
            if not self.is_patient:
                raise error
            return ASK_AGAIN
        if error.code == 410:
            self._version = ""
            if self._failures == 1:
                return 0.0
        return error.retry_after or errors.compute_delay(self._failures)


def _make_key(item: types.Object) -> Key:
    # Many objects share a namespace, and the name is kept for each.
    return (sys.intern(item.metadata.namespace or ""), item.metadata.name)
