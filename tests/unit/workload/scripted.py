"""An apiserver that says exactly the bytes that a test wants, whatever JSON it is, without HTTP.

It plays what `FakeApiserver`, which reads what it says, can't: documents that no decoder follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import aiohttp
import msgspec
from sidecar_lifecycle.shell.kube import client

END = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}


def line(kind: str, item: bytes | str | dict[str, Any]) -> bytes:
    """Return a line of a watch; an object may be given as the text that it is sent as."""
    text = item if isinstance(item, bytes | str) else json.dumps(item)
    body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)


class _Content:
    """The body of a watch."""

    def __init__(self, first: bytes, later: asyncio.Queue[bytes]) -> None:
        self._first = first
        self._later = later

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Yield what there is, then what comes."""
        yield self._first
        while True:
            yield await self._later.get()


class Scripted(client.Client):
    """Stands for a client."""

    def __init__(self) -> None:
        super().__init__(client.Access(server=""))
        self.present: defaultdict[str, list[bytes]] = defaultdict(list)
        """Objects by plural, as the bytes that the server sends."""
        self.answers: dict[str, bytes] = {}
        """To requests, by the end of their path."""
        self.events: list[dict[str, Any]] = []
        self.evicted: list[str] = []
        self.watches: defaultdict[str, list[asyncio.Queue[bytes]]] = defaultdict(list)

    def say(self, plural: str, kind: str, item: bytes | str | dict[str, Any]) -> None:
        """Send a line to all watches of a kind."""
        for queue in self.watches[plural]:
            queue.put_nowait(line(kind, item))

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], idle: float
    ) -> AsyncGenerator[aiohttp.StreamReader]:
        plural = path.rpartition("/")[2]
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self.watches[plural].append(queue)
        first = b"".join(line("ADDED", item) for item in self.present[plural])
        yield _Content(first + line("BOOKMARK", END), queue)  # type: ignore[misc]

    async def request(self, method: str, path: str, **arguments: Any) -> bytes:
        last = path.rpartition("/")[2]
        if method == "POST" and last == "events":
            self.events.append(json.loads(msgspec.json.encode(arguments["body"])))
        if last == "eviction":
            self.evicted.append(path.split("/")[-2])
        for end, answer in self.answers.items():
            if path.endswith(end):
                return answer
        return b'{"items":[%s],"metadata":{}}' % b",".join(self.present[last])
