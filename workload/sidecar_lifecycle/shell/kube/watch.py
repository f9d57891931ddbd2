"""Follow a collection: list, watch, resume, and list again when the server forgot."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
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
"""Seconds; the apiserver sends a bookmark about every minute, so silence means a dead peer."""
LONGEST = 32 << 20
"""Bytes of an event: etcd takes objects of 1.5 MB unless it is told otherwise."""
ASK_AGAIN = 60.0
"""Seconds until something that was forbidden, or is not there, is tried again."""


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One change of the collection.

    `synced` has no object and says that all that exists has been reported, at first and after
    every relist. The object of `deleted` has its name, namespace and uid only.
    """

    kind: Kind
    object: T | None = None


class _Envelope(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Error(msgspec.Struct):
    code: int = 0


_envelope = msgspec.json.Decoder(_Envelope).decode
_error = msgspec.json.Decoder(_Error).decode


@dataclass(slots=True)
class Watch(Generic[T]):
    """A collection, followed for ever.

    The namespace "*" is all of them, and that of cluster-scoped resources. What `concerns` selects
    by must not change in an object's life; the server evaluates the other selectors.
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
    """Whether to wait for a right, or a kind, that an administrator may add."""
    live: bool = False
    """The collection is listed and the server answers."""
    _version: str = ""
    """From which the watch can be resumed; empty: all must be listed."""
    _known: dict[Key, str] = field(default_factory=dict[Key, str])
    """The UIDs of the objects that were reported: for tombstones after a relist."""
    _failures: int = 0
    """In a row, since the server last sent something."""

    async def changes(self) -> AsyncGenerator[Change[T]]:
        """Report all objects, then every change.

        Raises:
            StatusError: 403 or 404, unless it is patient. Anything else is retried for ever.
        """
        try:
            while True:
                try:
                    async with contextlib.aclosing(self._round()) as changes:
                        async for change in changes:
                            yield change
                    # The server ends a watch now and then; one that ends at once is a failure.
                    delay = errors.delay(self._failures) if self._failures else 0.0
                    self._failures += 1
                except errors.KubeError as error:
                    delay = self._failed(error)
                    # A version that is too old is the usual end of a quiet watch.
                    if delay:
                        log.warning(
                            "watch interrupted",
                            resource=self._where,
                            error=str(error),
                            retry_in=round(delay, 2),
                        )
                await asyncio.sleep(delay)
        finally:
            self.live = False

    @property
    def _where(self) -> str:
        return client.path(self.kind, None if self.namespace == "*" else self.namespace)

    async def _round(self) -> AsyncGenerator[Change[T]]:
        """List if needed, then follow until the server ends the watch."""
        if not self._version:
            async for change in self._list():
                yield change
        params = {
            **client.selectors(self.labels, self.fields),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(240, 360)),  # noqa: S311 - spreads the load
        }
        async with self.client.stream(self._where, params=params, idle=IDLE) as content:
            self.live = True
            while line := await content.readline(max_line_length=LONGEST):
                changes: list[Change[T]] = []
                with self.fence.around("decode", functools.partial(self._named, line)):
                    changes = self._event(line)
                self._failures = 0
                for change in changes:
                    yield change

    async def _list(self) -> AsyncGenerator[Change[T]]:
        listed: set[Key] = set()
        version = ""
        async for listed_at, items in self.client.pages(
            self._where,
            self.kind,
            self.fence,
            labels=self.labels,
            fields=self.fields,
            concerns=self.concerns,
        ):
            version = listed_at
            for item in items:
                listed.add(_key(item))
                for change in self._seen(item):
                    yield change
        self._version = version
        for key in [key for key in self._known if key not in listed]:
            yield self._tombstone(key, self._known.pop(key))
        self.live = True
        yield Change("synced")

    def _event(self, line: bytes) -> list[Change[T]]:
        event = bounded.cut_if_deep(_envelope, line)
        if event.type == "ERROR":
            code = bounded.cut_if_deep(_error, event.object).code
            raise errors.from_response(code or 500, bytes(event.object))
        if event.type in ("BOOKMARK", "DELETED"):
            # Their name is enough, and an object that can't be decoded has to go, too.
            item = client.named(self.kind, event.object)
        else:
            item = types.decode_json(event.object, self.kind)
        self._version = item.metadata.resourceVersion or ""
        if event.type == "BOOKMARK":
            return []
        if event.type == "DELETED":
            self._known.pop(_key(item), None)
            return [Change("deleted", item)]
        return self._seen(item) if self.concerns(item) else []

    def _seen(self, item: T) -> list[Change[T]]:
        key, uid = _key(item), item.metadata.uid
        before = self._known.get(key)
        self._known[key] = uid
        if before == uid:
            return [Change("modified", item)]
        gone = [] if before is None else [self._tombstone(key, before)]
        return [*gone, Change("added", item)]

    def _tombstone(self, key: Key, uid: str) -> Change[T]:
        namespace, name = key
        meta = types.ObjectMeta(name=name, namespace=namespace or None, uid=uid)
        return Change("deleted", self.kind(metadata=meta))

    def _named(self, line: bytes) -> T:
        return client.named(self.kind, bounded.cut_if_deep(_envelope, line).object)

    def _failed(self, error: errors.KubeError) -> float:
        """Take note of a failure; return the seconds until the next try, or raise the failure."""
        self.live = False
        self._failures += 1
        if not isinstance(error, errors.StatusError):
            return errors.delay(self._failures)
        if error.code in (403, 404):
            if not self.is_patient:
                raise error
            return ASK_AGAIN
        if error.code == 410:
            self._version = ""
            if self._failures == 1:
                return 0.0
        return error.retry_after or errors.delay(self._failures)


def _key(item: types.Object) -> Key:
    return (item.metadata.namespace or "", item.metadata.name)
