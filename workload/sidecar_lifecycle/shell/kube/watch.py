"""Follow a collection: list, watch, resume, and list again when the server forgot."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class WatchState:
    """What a health check wants to know of a watch; pass one to `watch`."""

    live: bool = False
    """The collection is listed and the server answers."""


class _Envelope(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Error(msgspec.Struct):
    code: int = 0


_envelope = msgspec.json.Decoder(_Envelope).decode
_error = msgspec.json.Decoder(_Error).decode


@dataclass(slots=True, kw_only=True)
class _Watch(Generic[T]):
    client: client.Client
    resource: type[T]
    where: str
    labels: str
    fields: str
    state: WatchState
    fence: Fence
    concerns: Callable[[T], bool]
    version: str = ""
    """From which the watch can be resumed; empty: all must be listed."""
    known: dict[Key, str] = field(default_factory=dict[Key, str])
    """The UIDs of the objects that were reported: for tombstones after a relist."""
    failures: int = 0
    """In a row, since the server last sent something."""

    async def round(self) -> AsyncGenerator[Change[T]]:
        """List if needed, then follow until the server ends the watch."""
        if not self.version:
            async for change in self._list():
                yield change
        params = {
            **client.selectors(self.labels, self.fields),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.version,
            "timeoutSeconds": str(random.randint(240, 360)),  # noqa: S311 - spreads the load
        }
        async with self.client.stream(self.where, params=params, idle=IDLE) as content:
            self.state.live = True
            while line := await content.readline(max_line_length=LONGEST):
                changes: list[Change[T]] = []
                with self.fence.around("decode", functools.partial(self._named, line)):
                    changes = self._event(line)
                self.failures = 0
                for change in changes:
                    yield change

    async def _list(self) -> AsyncGenerator[Change[T]]:
        listed: set[Key] = set()
        version = ""
        async for listed_at, items in self.client.pages(
            self.where,
            self.resource,
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
        self.version = version
        for key in [key for key in self.known if key not in listed]:
            yield self._tombstone(key, self.known.pop(key))
        self.state.live = True
        yield Change("synced")

    def _event(self, line: bytes) -> list[Change[T]]:
        event = bounded.cut_if_deep(_envelope, line)
        if event.type == "ERROR":
            code = bounded.cut_if_deep(_error, event.object).code
            raise errors.from_response(code or 500, bytes(event.object))
        if event.type in ("BOOKMARK", "DELETED"):
            # Their name is enough, and an object that can't be decoded has to go, too.
            item = client.named(self.resource, event.object)
        else:
            item = types.decode_json(event.object, self.resource)
        self.version = item.metadata.resourceVersion or ""
        if event.type == "BOOKMARK":
            return []
        if event.type == "DELETED":
            self.known.pop(_key(item), None)
            return [Change("deleted", item)]
        return self._seen(item) if self.concerns(item) else []

    def _seen(self, item: T) -> list[Change[T]]:
        key, uid = _key(item), item.metadata.uid
        before = self.known.get(key)
        self.known[key] = uid
        if before == uid:
            return [Change("modified", item)]
        gone = [] if before is None else [self._tombstone(key, before)]
        return [*gone, Change("added", item)]

    def _tombstone(self, key: Key, uid: str) -> Change[T]:
        namespace, name = key
        meta = types.ObjectMeta(name=name, namespace=namespace or None, uid=uid)
        return Change("deleted", self.resource(metadata=meta))

    def _named(self, line: bytes) -> T:
        return client.named(self.resource, bounded.cut_if_deep(_envelope, line).object)

    def failed(self, error: errors.KubeError, *, is_patient: bool) -> float:
        """Take note of a failure; return the seconds until the next try, or raise the failure."""
        self.state.live = False
        self.failures += 1
        if not isinstance(error, errors.StatusError):
            return errors.delay(self.failures)
        if error.code in (403, 404):
            if not is_patient:
                raise error
            return ASK_AGAIN
        if error.code == 410:
            self.version = ""
            if self.failures == 1:
                return 0.0
        return error.retry_after or errors.delay(self.failures)


def _key(item: types.Object) -> Key:
    return (item.metadata.namespace or "", item.metadata.name)


async def watch(
    connection: client.Client,
    resource: type[T],
    *,
    namespace: str = "*",
    labels: str = "",
    fields: str = "",
    state: WatchState | None = None,
    fence: Fence | None = None,
    concerns: Callable[[T], bool] = lambda _: True,
    is_patient: bool = False,
) -> AsyncGenerator[Change[T]]:
    """Report all objects, then every change, for ever.

    The namespace "*" is all of them, and that of cluster-scoped resources. What `concerns` selects
    by must not change in an object's life; the server evaluates the other selectors.

    Raises:
        StatusError: 403 or 404, unless it is patient: an administrator may grant the right, or
            install the kind. Anything else is retried for ever.
    """
    following = _Watch(
        client=connection,
        resource=resource,
        where=client.path(resource, None if namespace == "*" else namespace),
        labels=labels,
        fields=fields,
        state=state or WatchState(),
        fence=fence or Fence(),
        concerns=concerns,
    )
    try:
        while True:
            try:
                async with contextlib.aclosing(following.round()) as changes:
                    async for change in changes:
                        yield change
                # The server ends a watch now and then; one that ends at once is a failure.
                delay = errors.delay(following.failures) if following.failures else 0.0
                following.failures += 1
            except errors.KubeError as error:
                delay = following.failed(error, is_patient=is_patient)
                # A version that is too old is the usual end of a quiet watch.
                if delay:
                    log.warning(
                        "watch interrupted",
                        resource=following.where,
                        error=str(error),
                        retry_in=round(delay, 2),
                    )
            await asyncio.sleep(delay)
    finally:
        following.state.live = False
