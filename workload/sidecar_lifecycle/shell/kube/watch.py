"""Follow a collection: list, watch, resume, and list again when the server forgot."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, cast

import aiohttp
import msgspec
import structlog

from integrator_contract import bounded
from sidecar_lifecycle.model import types

from . import errors
from .client import Client, path
from .fence import Fence

T = TypeVar("T", bound=types.Object)
Kind = Literal["synced", "added", "modified", "deleted"]

log = structlog.get_logger(__name__)

PAGE = 500
"""Objects per page when the server does not stream its lists."""
IDLE = 120.0
"""Seconds; the apiserver sends a bookmark about every minute, so silence means a dead peer."""
ASK_AGAIN = 60.0
"""Seconds until something that was forbidden, or is not there, is tried again."""
_CHANGES = ("ADDED", "MODIFIED", "DELETED")
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


class _Envelope(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Event(msgspec.Struct, Generic[T]):
    type: str
    object: T


class _Error(msgspec.Struct):
    code: int = 0


_envelope = msgspec.json.Decoder(_Envelope).decode
_error = msgspec.json.Decoder(_Error).decode


class _ListMeta(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - the API's name
    token: str = msgspec.field(default="", name="continue")


class Listing(msgspec.Struct):
    """The answer to a list request, its items not decoded yet."""

    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


def listed(data: bytes) -> Listing:
    """Decode a list, but for its items: one of them that can't be read must not cost the others.

    Raises:
        Unreachable: It is no list.
    """
    with errors.understood():
        try:
            return msgspec.json.decode(data, type=Listing)
        except RecursionError:
            return msgspec.json.decode(bounded.shallow(data), type=Listing)


@dataclass(slots=True, kw_only=True)
class _Watch(Generic[T]):
    client: Client
    resource: type[T]
    where: str
    selectors: dict[str, str]
    state: WatchState
    fence: Fence
    concerns: Callable[[T], bool]
    decode: Callable[[bytes], _Event[T]] = field(init=False)
    version: str = ""
    """From which the watch can be resumed; empty: all must be listed."""
    known: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """The UIDs of the objects that were reported: for tombstones after a relist."""
    listed: set[tuple[str, str]] | None = None
    """Objects seen so far in a relist under way."""
    streaming_lists: bool = True
    line: bytes = b""
    """Being read."""

    def __post_init__(self) -> None:
        # The type's argument is known at run time only.
        self.decode = msgspec.json.Decoder(cast("Any", _Event)[self.resource]).decode

    async def round(self) -> AsyncGenerator[Change[T]]:
        """List if needed, then follow until the server ends the watch."""
        if self.version == "" and not self.streaming_lists:
            async for change in self._list():
                yield change
        params = {
            **self.selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(240, 360)),  # noqa: S311 - spreads the load
        }
        if self.version:
            params["resourceVersion"] = self.version
        else:
            self.listed = set()
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        fenced = self.fence.around("decode", self._named_in_line)
        async with self.client.stream(self.where, params=params, idle=IDLE) as content:
            if self.version:
                self.state.live = True
            async for line in lines(content):
                self.line = line
                changes: list[Change[T]] = []
                with fenced:
                    changes = self._event(line)
                for change in changes:
                    yield change

    async def _list(self) -> AsyncIterator[Change[T]]:
        self.listed = set()
        params = {**self.selectors, "limit": str(PAGE)}
        while True:
            data = await self.client.request("GET", self.where, params=params, timeout=60)
            listing = listed(data)
            for raw in listing.items or ():
                changes: list[Change[T]] = []
                with self.fence.around("decode", functools.partial(self._named, raw)):
                    item = types.decode_json(raw, self.resource)
                    if self.concerns(item):
                        changes = self._seen(item)
                for change in changes:
                    yield change
            if not listing.metadata.token:
                break
            params["continue"] = listing.metadata.token
        self.version = listing.metadata.resourceVersion
        for change in self._synced():
            yield change

    def _event(self, line: bytes) -> list[Change[T]]:
        try:
            event = self.decode(line)
        except (msgspec.ValidationError, RecursionError):
            return self._unusual(line)
        if event.type not in _CHANGES:
            return self._unusual(line)
        return self._apply(event.type, event.object)

    def _unusual(self, line: bytes) -> list[Change[T]]:
        """Read a line that is about no object, or about one that can't be decoded in one go."""
        event = bounded.cut_if_deep(_envelope, line)
        if event.type == "ERROR":
            code = bounded.cut_if_deep(_error, event.object).code
            raise errors.from_response(code or 500, bytes(event.object))
        if event.type == "BOOKMARK":
            # An object of the resource's kind in name only: a pod without containers, say.
            meta = msgspec.json.decode(event.object, type=types.Object).metadata
            self.version = meta.resourceVersion or ""
            ended = meta.annotations.get(_INITIAL_EVENTS_END) == "true"
            return self._synced() if ended else []
        # Of what has gone nobody reads more, and what can't be read must go, too.
        gone = event.type == "DELETED"
        item = (
            self._named(event.object) if gone else types.decode_json(event.object, self.resource)
        )
        return self._apply(event.type, item)

    def _apply(self, kind: str, item: T) -> list[Change[T]]:
        # While initial events arrive they are not ordered by version: the bookmark tells it.
        if self.listed is None:
            self.version = item.metadata.resourceVersion or ""
        # Of what has gone there may be no more than its name.
        if kind == "DELETED":
            self.known.pop(_key(item), None)
            return [Change("deleted", item)]
        return self._seen(item) if self.concerns(item) else []

    def _seen(self, item: T) -> list[Change[T]]:
        """Return the changes that follow from an object that exists."""
        key, uid = _key(item), item.metadata.uid
        before = self.known.get(key, uid)
        kind: Kind = "modified" if key in self.known and before == uid else "added"
        gone = [] if before == uid else [Change("deleted", self._tombstone(key, before))]
        self.known[key] = uid
        if self.listed is not None:
            self.listed.add(key)
        return [*gone, Change(kind, item)]

    def _synced(self) -> list[Change[T]]:
        """Return tombstones for what a relist no longer has, then `synced`."""
        self.state.live = True
        gone = [key for key in self.known if key not in (self.listed or ())]
        self.listed = None
        changes = [Change("deleted", self._tombstone(key, self.known.pop(key))) for key in gone]
        return [*changes, Change("synced")]

    def _tombstone(self, key: tuple[str, str], uid: str) -> T:
        namespace, name = key
        return self.resource(
            metadata=types.ObjectMeta(name=name, namespace=namespace or None, uid=uid)
        )

    def _named(self, raw: msgspec.Raw) -> T:
        return self.resource(metadata=types.identity(raw))

    def _named_in_line(self) -> T:
        return self._named(bounded.cut_if_deep(_envelope, self.line).object)

    def failed(self, error: errors.KubeError) -> bool:
        """Take note of a failure; return whether another way should be tried at once."""
        self.state.live = False
        if not isinstance(error, errors.StatusError):
            return False
        if error.code == 410:
            self.version = ""
        if error.code in (400, 422) and self.streaming_lists and not self.version:
            self.streaming_lists = False
            return True
        return error.code == 410


def _key(item: types.Object) -> tuple[str, str]:
    return (item.metadata.namespace or "", item.metadata.name)


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
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    following = _Watch(
        client=client,
        resource=resource,
        where=path(resource, None if namespace == "*" else namespace),
        selectors={key: value for key, value in selectors.items() if value},
        state=state or WatchState(),
        fence=fence or Fence(),
        concerns=concerns,
    )
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
                delay = 0.0 if failures == 1 else errors.delay(failures - 1)
            except errors.KubeError as error:
                failures += 1
                again = following.failed(error)
                retry_after = getattr(error, "retry_after", None)
                if isinstance(error, errors.StatusError) and error.code in (403, 404):
                    if not is_patient:
                        raise
                    retry_after = ASK_AGAIN
                delay = 0.0 if again and failures == 1 else retry_after or errors.delay(failures)
                level = log.debug if again else log.warning
                level(
                    "watch interrupted",
                    resource=following.where,
                    error=str(error),
                    retry_in=round(delay, 2),
                )
            await asyncio.sleep(delay)
    finally:
        following.state.live = False
