"""Follow a collection: list, watch, resume, and list again when the server forgot."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import aiohttp
import msgspec
import structlog

from . import errors, types
from .backoff import Backoff
from .client import Client, path

T = TypeVar("T", bound=types.Object)
Kind = Literal["synced", "added", "modified", "deleted"]

log = structlog.get_logger(__name__)

PAGE = 500
"""Objects per page when the server does not stream its lists."""
IDLE = 120.0
"""Seconds; the apiserver sends a bookmark about every minute, so silence means a dead peer."""
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One change of the collection.

    `synced` has no object and says that all that exists has been reported, at first and after
    every relist. The object of `deleted` may be a tombstone with name, namespace and uid only.
    """

    kind: Kind
    object: T | None = None


@dataclass(slots=True)
class WatchState:
    """What a health check wants to know of a watch; pass one to `watch`."""

    live: bool = False
    """The collection is listed and the server answers."""
    relists: int = 0
    failure: str = ""


class _Envelope(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Listing(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: dict[str, msgspec.Raw] = {}

    def text(self, key: str) -> str:
        raw = self.metadata.get(key)
        return str(msgspec.json.decode(raw)) if raw else ""


@dataclass(slots=True)
class _Cursor(Generic[T]):
    """Where we are, and which objects were reported: for tombstones after a relist."""

    resource: type[T]
    version: str = ""
    known: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    listed: set[tuple[str, str]] | None = None
    """Objects seen so far in a relist under way."""

    def apply(self, kind: str, item: T) -> list[Change[T]]:
        """Return the changes that follow from one watch event or list item."""
        meta = item.metadata
        key = (meta.namespace or "", meta.name)
        if kind == "DELETED":
            self.known.pop(key, None)
            return [Change("deleted", item)]
        changes: list[Change[T]] = []
        before = self.known.get(key)
        if before is not None and before != meta.uid:
            changes.append(Change("deleted", self.tombstone(key, before)))
            before = None
        self.known[key] = meta.uid
        if self.listed is not None:
            self.listed.add(key)
        return [*changes, Change("added" if before is None else "modified", item)]

    def end_of_list(self) -> list[Change[T]]:
        """Return tombstones for what a relist no longer has, then `synced`."""
        gone = [key for key in self.known if key not in (self.listed or ())]
        self.listed = None
        changes = [Change("deleted", self.tombstone(key, self.known.pop(key))) for key in gone]
        return [*changes, Change("synced")]

    def tombstone(self, key: tuple[str, str], uid: str) -> T:
        namespace, name = key
        return self.resource(
            metadata=types.ObjectMeta(name=name, namespace=namespace or None, uid=uid)
        )


class _Watch(Generic[T]):
    def __init__(
        self,
        client: Client,
        resource: type[T],
        namespace: str | None,
        selectors: Mapping[str, str],
        state: WatchState,
    ) -> None:
        self.transport = client.transport
        self.resource = resource
        self.path = path(resource, None if namespace == "*" else namespace)
        self.selectors = selectors
        self.cursor = _Cursor(resource)
        self.streaming_lists = True
        self.state = state

    async def round(self) -> AsyncGenerator[Change[T]]:
        """List if needed, then follow until the server ends the watch."""
        if self.cursor.version == "" and not self.streaming_lists:
            async for change in self._list():
                yield change
        params = self._params()
        async with self.transport.stream(self.path, params=params, idle=IDLE) as content:
            if self.cursor.version:
                self.state.live = True
            async for line in lines(content):
                for change in self._event(line):
                    yield change

    def _params(self) -> dict[str, str]:
        params = {
            **self.selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(240, 360)),  # noqa: S311 - spreads the load
        }
        if self.cursor.version:
            return {**params, "resourceVersion": self.cursor.version}
        self.cursor.listed = set()
        return {**params, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}

    async def _list(self) -> AsyncIterator[Change[T]]:
        self.cursor.listed = set()
        token = ""
        while True:
            params = {**self.selectors, "limit": str(PAGE)}
            if token:
                params["continue"] = token
            data = await self.transport.request("GET", self.path, params=params, timeout=60)
            listing = msgspec.json.decode(data, type=_Listing)
            for raw in listing.items or ():
                for change in self.cursor.apply("ADDED", types.decode_json(raw, self.resource)):
                    yield change
            token = listing.text("continue")
            if not token:
                self.cursor.version = listing.text("resourceVersion")
                for change in self._synced():
                    yield change
                return

    def _synced(self) -> list[Change[T]]:
        self.state.live = True
        self.state.relists += 1
        return self.cursor.end_of_list()

    def _event(self, line: bytes) -> list[Change[T]]:
        event = msgspec.json.decode(line, type=_Envelope)
        if event.type == "ERROR":
            code = msgspec.json.decode(event.object, type=dict[str, object]).get("code")
            raise errors.from_response(code if isinstance(code, int) else 500, bytes(event.object))
        if event.type == "BOOKMARK":
            # An object of the resource's kind in name only: a pod without containers, say.
            meta = msgspec.json.decode(event.object, type=types.Object).metadata
            self.cursor.version = meta.resourceVersion or ""
            ended = meta.annotations.get(_INITIAL_EVENTS_END) == "true"
            return self._synced() if ended else []
        item = types.decode_json(event.object, self.resource)
        # While initial events arrive they are not ordered by version: the bookmark tells it.
        if self.cursor.listed is None:
            self.cursor.version = item.metadata.resourceVersion or ""
        return self.cursor.apply(event.type, item)

    def failed(self, error: errors.KubeError) -> bool:
        """Take note of a failure; return whether another way should be tried at once."""
        self.state.live = False
        self.state.failure = str(error)
        if not isinstance(error, errors.StatusError):
            return False
        if error.code == 410:
            self.cursor.version = ""
        if error.code in (400, 422) and self.streaming_lists and not self.cursor.version:
            self.streaming_lists = False
            return True
        return error.code == 410


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, of any length."""
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        head, *rest = chunk.split(b"\n")
        parts.append(head)
        for piece in rest:
            if line := b"".join(parts):
                yield line
            parts = [piece]


async def watch(
    client: Client,
    resource: type[T],
    *,
    namespace: str | None = "*",
    labels: str = "",
    fields: str = "",
    backoff: Backoff | None = None,
    state: WatchState | None = None,
) -> AsyncGenerator[Change[T]]:
    """Report all objects, then every change, for ever.

    Args:
        client: the connection.
        resource: a slim type.
        namespace: a name, or "*" (or None) for all and for cluster-scoped resources.
        labels: a label selector, evaluated by the server.
        fields: a field selector, evaluated by the server.
        backoff: how long to wait after failures.
        state: kept up to date for health checks.

    Raises:
        StatusError: 403 or 404, which waiting does not heal; anything else is retried for ever.
    """
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    following = _Watch(
        client,
        resource,
        namespace or "*",
        {key: value for key, value in selectors.items() if value},
        state or WatchState(),
    )
    policy = backoff or Backoff()
    failures = 0
    try:
        while True:
            try:
                async with contextlib.aclosing(following.round()) as changes:
                    async for change in changes:
                        failures = 0
                        yield change
                # The server ends a watch now and then; one that ends at once is a failure.
                failures += 1
                delay = 0.0 if failures == 1 else policy.delay(failures - 1)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                failures += 1
                following.failed(errors.Unreachable(f"not understood: {error}"))
                delay = policy.delay(failures)
            except errors.KubeError as error:
                if isinstance(error, errors.StatusError) and error.code in (403, 404):
                    following.failed(error)
                    raise
                failures += 1
                again = following.failed(error)
                retry_after = getattr(error, "retry_after", None)
                delay = 0.0 if again and failures == 1 else retry_after or policy.delay(failures)
                level = log.debug if again else log.warning
                level(
                    "watch interrupted",
                    resource=following.path,
                    error=str(error),
                    retry_in=round(delay, 2),
                )
            await asyncio.sleep(delay)
    finally:
        following.state.live = False
