"""The API server of the workload's unit tests: real HTTP, watches and WebSocket frames.

It has pods whose proxies answer a port-forward or an exec, each in the way that a test chooses.
"""

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

from tests.unit import api_server
from tests.unit.api_server import Key, Object, Refused
from tests.unit.workload import kubelet
from tests.unit.workload.fake_proxy import Proxy

VERSIONS = {
    **dict.fromkeys(("daemonsets", "deployments", "replicasets", "statefulsets"), "apps/v1"),
    "cronjobs": "batch/v1",
    "endpointslices": "discovery.k8s.io/v1",
    "envoyfilters": "networking.istio.io/v1alpha3",
    "gateways": "networking.istio.io/v1",
    "jobs": "batch/v1",
    "mutatingwebhookconfigurations": "admissionregistration.k8s.io/v1",
}
"""The API versions of kinds that are not in the core group."""
PROXY = "istio-proxy"
PROTOCOL = "v4.channel.k8s.io"


class FakeApiserver(api_server.ApiServer):
    """The server, which `async with` runs."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[int, str, Object | None, Object | None]] = []
        self.compacted = 0
        self.watchers: dict[asyncio.Queue[Any], str] = {}
        self.proxies: defaultdict[str, Proxy] = defaultdict(Proxy)
        self.before_answer: Callable[[str, str], Awaitable[None] | None] = lambda *_: None
        self.admission: Callable[[Object], Object] = lambda item: item
        """Admission of an object in a dry run; it may raise `Refused`."""
        self.tried: list[Object] = []
        """Objects of dry runs."""
        self.evicted: list[str] = []
        """UIDs of pods, deleted ones too."""
        self.raw: defaultdict[str, list[bytes]] = defaultdict(list)
        """Objects by plural that every list and watch has besides, as the bytes that are sent."""
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
        key = _key(plural, meta.get("namespace") or "", meta["name"])
        before = self.objects.get(key)
        item = copy.deepcopy(item)
        if plural == "pods" and "spec" in item:
            item.setdefault("status", {})["phase"] = _phase(item, before)
        return self.keep(key, item)

    def delete(self, plural: str, namespace: str, name: str) -> None:
        """Remove an object."""
        self.drop(_key(plural, namespace, name))

    def get(self, plural: str, namespace: str, name: str) -> Object:
        """Return an object as it is."""
        return self.objects[_key(plural, namespace, name)]

    def find(self, plural: str, namespace: str, name: str) -> Object | None:
        """Return an object if it is there."""
        return self.objects.get(_key(plural, namespace, name))

    def all(self, plural: str) -> list[Object]:
        """Return all objects of a kind."""
        return [item for key, item in self.objects.items() if key[1] == plural]

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

    def publish(self, key: Key, item: Object | None, before: Object | None) -> None:
        """Tell the watches of a kind."""
        entry = (self.version, key[1], item, before)
        self.history.append(entry)
        for queue, wanted in self.watchers.items():
            if wanted == key[1]:
                queue.put_nowait(entry)

    def admit(self, key: Key, item: Object, *, is_new: bool) -> Object:
        """Try a pod by `admission`."""
        if key[1] != "pods" or not is_new:
            return item
        self.tried.append(copy.deepcopy(item))
        return self.admission(item)

    def note(self, verb: str, key: Key, *, dry_run: bool) -> None:
        """Keep the UIDs of evicted pods."""
        if verb == "delete":
            self.evicted.append(self.objects[key]["metadata"]["uid"])

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = f"/{request.match_info['path']}"
        media = request.content_type if request.body_exists else ""
        body = await request.read()
        try:
            asked = api_server.Request(
                request.method, path, request.query, media, json.loads(body or b"{}")
            )
            self.accept(asked)
            if (waiting := self.before_answer(request.method, path)) is not None:
                await waiting
            self.refuse(asked)
            return await self._respond(request, asked)
        except Refused as error:
            return web.json_response(error.status(), status=error.code, headers=error.headers)

    async def _respond(
        self, request: web.Request, asked: api_server.Request
    ) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            raise Refused("Unauthorized", 401)
        _, plural, namespace, name, part = api_server.Address.of(asked.path)
        if part in ("portforward", "exec"):
            return await self._stream(request, namespace, name, part)
        if request.query.get("watch"):
            return await self._watch(request, plural, namespace)
        if asked.media and not asked.media.endswith("json"):
            raise Refused("Unsupported Media Type", 415)
        text = self.carry_out(asked)
        if asked.verb == "list" and b'"continue": ""' in text:
            raw = b",".join(self.raw[plural])
            comma = b"," if raw and not text.endswith(b"[]}") else b""
            text = text.removesuffix(b"]}") + comma + raw + b"]}"
        # As a server written in Go may send an empty list.
        text = text.replace(b'"items": []}', b'"items": null}')
        status = 201 if asked.verb == "create" else 200
        return web.Response(body=text, status=status, content_type="application/json")

    async def _watch(
        self, request: web.Request, plural: str, namespace: str
    ) -> web.StreamResponse:
        def matches(item: Object) -> bool:
            return api_server.is_selected(item, namespace, request.query)

        # Without bookmarks a quiet watch ends in 410 Gone.
        assert request.query["allowWatchBookmarks"] == "true"
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
        version, _, item, before = entry
        now, then = (each is not None and matches(each) for each in (item, before))
        if now:
            await _send(response, "MODIFIED" if then else "ADDED", item)
        elif then:
            # What leaves a selection is sent as it was before, with the new version.
            last = {**before["metadata"], "resourceVersion": str(version)}
            await _send(response, "DELETED", {**before, "metadata": last})

    async def _stream(
        self, request: web.Request, namespace: str, name: str, sub: str
    ) -> web.StreamResponse:
        if _key("pods", namespace, name) not in self.objects:
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
        pod = self.objects.get(_key("pods", namespace, name))
        if pod and pod["metadata"]["uid"] == uid:
            self.set_state(namespace, name, PROXY, ended)


def _phase(pod: Object, before: Object | None) -> str:
    """Return a pod's phase; it never leaves the last one (`generateAPIPodStatus`)."""
    if before and before["metadata"]["uid"] == pod["metadata"].get("uid"):
        last = before["status"]["phase"]
        if last in kubelet.TERMINAL:
            return last
    return kubelet.phase(pod)


def _key(plural: str, namespace: str, name: str) -> Key:
    return VERSIONS.get(plural, "v1"), plural, namespace, name


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
