"""An apiserver small enough to read: real HTTP, watch streams and WebSocket frames, in-process.

It keeps objects, versions and a history, evaluates the selectors that the workload sends, and has
pods whose proxies answer a port-forward or an exec, each in the way that a test chooses.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

from aiohttp import web

from tests.unit import api_objects
from tests.unit.api_objects import Object
from tests.unit.workload import kubelet
from tests.unit.workload.fake_proxy import Proxy

Key = tuple[str, str, str]
"""Plural, namespace, name."""
PROXY = "istio-proxy"
PROTOCOL = "v4.channel.k8s.io"


class Refused(Exception):  # noqa: N818
    """Raised by an admission, or before an answer: code and message of the API's answer."""

    def __init__(self, message: str = "fake", code: int = 403, **headers: str) -> None:
        super().__init__(message)
        self.code = code
        self.headers = {key.replace("_", "-"): value for key, value in headers.items()}


class FakeApiserver(api_objects.Objects):
    """The server, which `async with` runs."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[int, str, str, Object, Object | None]] = []
        self.compacted = 0
        self.watchers: dict[asyncio.Queue[Any], str] = {}
        self.proxies: defaultdict[str, Proxy] = defaultdict(Proxy)
        self.denied: Callable[[str, str], bool] = lambda method, path: False
        self.failures: list[tuple[str, int, dict[str, str]]] = []
        """(path part, status, headers): the next request that matches gets it once."""
        self.requests: list[tuple[str, str]] = []
        self.before_answer: Callable[[str, str], Awaitable[None] | None] = lambda *_: None
        self.admission: Callable[[Object], Object] = lambda item: item
        """Admission of an object in a dry run; it may raise `Refused`."""
        self.tried: list[Object] = []
        """Objects of dry runs."""
        self.evicted: list[str] = []
        """UIDs of pods, deleted ones too."""
        self.raw: defaultdict[str, list[bytes]] = defaultdict(list)
        """Objects by plural that every list and watch has besides, as the bytes that are sent."""
        self.answers: dict[str, bytes] = {}
        """To GET requests for an object, instead of it, by path."""
        self.token = "t"
        """Whose bearer is let in."""
        self.streams: list[str] = []
        """The pods to which a stream is open."""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for proxy in self.proxies.values():
            proxy.release.set()
        self.end_watches()
        await self._runner.cleanup()

    # What tests do to the cluster.

    def put(self, plural: str, item: Object) -> Object:
        """Create or replace an object, as its owner or the kubelet would.

        A pod has the phase that the kubelet gives it for its containers' statuses.
        """
        meta = item["metadata"]
        key = (plural, meta.get("namespace") or "", meta["name"])
        before = self.objects.get(key)
        item = copy.deepcopy(item)
        if plural == "pods" and "spec" in item:
            item.setdefault("status", {})["phase"] = _phase(item, before)
        item = self.keep(key, item)
        self._publish(plural, "MODIFIED" if before else "ADDED", item, before)
        return item

    def delete(self, plural: str, namespace: str, name: str) -> None:
        """Remove an object."""
        before = self.objects.pop((plural, namespace, name))
        self.version += 1
        gone = copy.deepcopy(before)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._publish(plural, "DELETED", gone, before)

    def get(self, plural: str, namespace: str, name: str) -> Object:
        """Return an object as it is."""
        return self.objects[plural, namespace, name]

    def all(self, plural: str) -> list[Object]:
        """Return all objects of a kind."""
        return [item for key, item in self.objects.items() if key[0] == plural]

    def namespace(self, name: str, **metadata: Any) -> None:
        """Create a namespace."""
        self.put("namespaces", {"kind": "Namespace", "metadata": {"name": name, **metadata}})

    def set_state(self, namespace: str, name: str, container: str, state: Object) -> None:
        """Report a container's state, and the resulting phase, as the kubelet does."""
        pod = copy.deepcopy(self.get("pods", namespace, name))
        statuses = pod["status"]["containerStatuses"]
        next(each for each in statuses if each["name"] == container)["state"] = state
        self.put("pods", pod)

    def state(self, name: str, container: str = "main", namespace: str = "kf") -> Object:
        """Return the state of a pod's container."""
        statuses = self.get("pods", namespace, name)["status"]["containerStatuses"]
        return next(each["state"] for each in statuses if each["name"] == container)

    def say(self, plural: str, kind: str, text: bytes) -> None:
        """Send a line to all watches of a kind, whatever JSON it is."""
        for queue, wanted in self.watchers.items():
            if wanted == plural:
                queue.put_nowait(_line(kind, text))

    def end_watches(self) -> None:
        """Close all watch connections, as a restarting apiserver does."""
        for queue in list(self.watchers):
            queue.put_nowait(None)

    def compact(self) -> None:
        """Forget the history: who resumes from before gets 410."""
        self.compacted = self.version
        self.history.clear()

    # Serving.

    def _publish(self, plural: str, kind: str, item: Object, before: Object | None) -> None:
        entry = (self.version, plural, kind, item, before)
        self.history.append(entry)
        for queue, wanted in self.watchers.items():
            if wanted == plural:
                queue.put_nowait(entry)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = f"/{request.match_info['path']}"
        if "continue" not in request.query:
            self.requests.append((request.method, path))
        try:
            if (waiting := self.before_answer(request.method, path)) is not None:
                await waiting
            self._refuse(request, path)
            return await self._answer(request, path)
        except Refused as error:
            return _status(error.code, str(error), error.headers)

    async def _answer(self, request: web.Request, path: str) -> web.StreamResponse:
        _, plural, namespace, name, sub = api_objects.Address.of(path)
        if sub in ("portforward", "exec"):
            return await self._stream(request, namespace, name, sub)
        if request.method == "GET" and not name:
            if request.query.get("watch"):
                return await self._watch(request, plural, namespace)
            return self._list(request, plural, namespace)
        body = json.loads(await request.read() or b"{}")
        if sub == "eviction":
            key = (plural, namespace, name)
            self._remove(key, body.get("deleteOptions", {}))
            return web.json_response({}, status=201)
        return self._single(request, (plural, namespace, name), body)

    def _refuse(self, request: web.Request, path: str) -> None:
        for failure in list(self.failures):
            part, status, headers = failure
            if part in path:
                self.failures.remove(failure)
                raise Refused("Injected", status, **headers)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            raise Refused("Unauthorized", 401)
        if request.body_exists and not request.content_type.endswith("json"):
            raise Refused("Unsupported Media Type", 415)
        if self.denied(request.method, path):
            raise Refused("Forbidden")

    def _single(self, request: web.Request, key: Key, body: Object) -> web.Response:
        method = request.method
        if method == "POST":
            if request.query.get("dryRun"):
                self.tried.append(body)
                return web.json_response(self.admission(body), status=201)
            key = (key[0], key[1], body["metadata"]["name"])
            if key in self.objects:
                raise Refused("AlreadyExists", 409)
            return web.json_response(self.put(key[0], body), status=201)
        if key not in self.objects:
            raise Refused("NotFound", 404)
        current = self.objects[key]
        if method == "GET":
            answer = self.answers.get(request.path) or json.dumps(current).encode()
            return web.Response(body=answer, content_type="application/json")
        if method == "DELETE":
            self._remove(key, body)
            return web.json_response({})
        wanted = body.get("metadata", {}).get("resourceVersion")
        if method == "PUT" and wanted and wanted != current["metadata"]["resourceVersion"]:
            raise Refused("Conflict", 409)
        return web.json_response(self.put(key[0], {**current, **body}))

    def _remove(self, key: Key, options: Object) -> None:
        if key not in self.objects:
            raise Refused("NotFound", 404)
        found = self.objects[key]["metadata"]
        wanted = options.get("preconditions", {})
        if any(found.get(field) != value for field, value in wanted.items()):
            raise Refused("Conflict", 409)
        self.evicted.append(found["uid"])
        self.delete(*key)

    def _select(self, request: web.Request, namespace: str) -> Callable[[Object], bool]:
        labels = request.query.get("labelSelector", "")
        fields = [part for part in request.query.get("fieldSelector", "").split(",") if part]

        def matches(item: Object) -> bool:
            meta = item["metadata"]
            if namespace and meta.get("namespace") != namespace:
                return False
            return api_objects.has_labels(item, labels) and all(
                _field(part, item) for part in fields
            )

        return matches

    def _list(self, request: web.Request, plural: str, namespace: str) -> web.Response:
        matches = self._select(request, namespace)
        items = [item for item in self.all(plural) if matches(item)]
        start = int(request.query.get("continue", 0))
        limit = int(request.query.get("limit", 0))
        if limit and "continue" not in request.query:
            # A page may be empty although others follow (k8s.io/api, ListOptions.limit).
            return self._page([], "0")
        limit = limit or len(items)
        more = str(start + limit) if start + limit < len(items) else ""
        texts = [json.dumps(item).encode() for item in items[start : start + limit]]
        raw = [] if more else self.raw[plural]
        return self._page([*texts, *raw], more)

    def _page(self, texts: list[bytes], more: str) -> web.Response:
        metadata = {"resourceVersion": str(self.version), "continue": more}
        body = b'{"kind":"List","metadata":%s,"items":[%s]}'
        body %= json.dumps(metadata).encode(), b",".join(texts)
        return web.Response(body=body, content_type="application/json")

    async def _watch(
        self, request: web.Request, plural: str, namespace: str
    ) -> web.StreamResponse:
        matches = self._select(request, namespace)
        since = int(request.query.get("resourceVersion") or 0)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self.watchers[queue] = plural
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            if since < self.compacted:
                await _send(response, "ERROR", {"kind": "Status", "code": 410, "reason": "Gone"})
                return response
            for entry in [each for each in self.history if each[1] == plural and since]:
                if entry[0] > since:
                    await self._event(response, entry, matches)
            while (entry := await queue.get()) is not None:
                if isinstance(entry, bytes):
                    await response.write(entry)
                else:
                    await self._event(response, entry, matches)
        except ConnectionResetError:
            pass
        finally:
            self.watchers.pop(queue, None)
        return response

    def bookmark(self) -> None:
        """Tell all watches the latest version."""
        # As the real one sends it: the kind's zero value, nulls included.
        meta = {"resourceVersion": str(self.version)}
        item = {"metadata": meta, "spec": {"containers": None}, "status": {}}
        for plural in {*self.watchers.values()}:
            self.say(plural, "BOOKMARK", json.dumps(item).encode())

    async def _event(
        self, response: web.StreamResponse, entry: Any, matches: Callable[[Object], bool]
    ) -> None:
        version, _, kind, item, before = entry
        now, then = matches(item) and kind != "DELETED", before is not None and matches(before)
        if now:
            await _send(response, "MODIFIED" if then else "ADDED", item)
        elif then:
            # What leaves a selection is sent as it was before, with the new version.
            last = copy.deepcopy(before)
            assert last is not None
            last["metadata"]["resourceVersion"] = str(version)
            await _send(response, "DELETED", last)

    async def _stream(
        self, request: web.Request, namespace: str, name: str, sub: str
    ) -> web.StreamResponse:
        if ("pods", namespace, name) not in self.objects:
            raise Refused("NotFound", 404)
        if PROTOCOL not in request.headers.get("Sec-WebSocket-Protocol", ""):
            raise Refused("BadRequest", 400)
        proxy = self.proxies[name]
        uid = self.get("pods", namespace, name)["metadata"]["uid"]
        quits = functools.partial(self._quit, namespace, name, uid)
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        self.streams.append(name)
        try:
            if sub == "portforward":
                await proxy.port_forward(request, socket, quits)
            else:
                await proxy.exec(request, socket, quits)
        finally:
            self.streams.remove(name)
        await socket.close()
        return socket

    def _quit(self, namespace: str, name: str, uid: str) -> None:
        ended = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:02:00Z"}}
        # A pod deleted meanwhile has no kubelet to report.
        pod = self.objects.get(("pods", namespace, name))
        if pod and pod["metadata"]["uid"] == uid:
            self.set_state(namespace, name, PROXY, ended)


def _phase(pod: Object, before: Object | None) -> str:
    """Return a pod's phase; it never leaves the last one (`generateAPIPodStatus`)."""
    if before and before["metadata"]["uid"] == pod["metadata"].get("uid"):
        last = before["status"]["phase"]
        if last in kubelet.TERMINAL:
            return last
    return kubelet.phase(pod)


def _field(part: str, item: Object) -> bool:
    key, _, value = part.replace("!=", "=").partition("=")
    found: Any = item
    for step in key.split("."):
        found = found.get(step) or {}
    found = found or ""
    return (found != value) if "!=" in part else (found == value)


def _status(code: int, message: str, headers: dict[str, str]) -> web.Response:
    return web.json_response(api_objects.refusal(code, message), status=code, headers=headers)


async def _send(response: web.StreamResponse, kind: str, item: Object) -> None:
    await response.write(_line(kind, json.dumps(item).encode()))


def _line(kind: str, text: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), text)


@contextlib.asynccontextmanager
async def running_task(coroutine: Any) -> AsyncIterator[asyncio.Task[Any]]:
    """Run something for the time of the block, and cancel it after."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(
    condition: Callable[[], object | Awaitable[object]], seconds: float = 300.0
) -> None:
    """Let the loop run until a condition holds; fails after that much (virtual) time."""
    pause = 0.001
    async with asyncio.timeout(seconds):
        while not (await found if inspect.isawaitable(found := condition()) else found):
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.5)
