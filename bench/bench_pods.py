"""What many pods under watch cost: a real kube-apiserver, and the reconciler beside it.

There is a control plane and no node. Namespaces and pods are put into etcd as the kubelet would
leave them, some 8 KB each, in 2,000 namespaces that are served. Once the unit has seen all of
them, 33 of them a second end (20,000 in ten minutes): their status is patched, and the node that
they are on (one listener is all hundred of them) writes down when it is asked for a pod's port,
and has the proxy end. Latency is from the moment before the patch is sent to that question, so it
has the API server's part in it. At the end the first of two units goes, by SIGTERM and by SIGKILL.

The last size over time is written to build/bench/pods.json, which docs/dashboard_picture.py draws.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import re
import signal
import socket
import ssl
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import bench_shutdown
from process import Process

from testbed import cluster, command_line, kubernetes
from tests.unit.workload import pods

NAMESPACES = 2000
SERVED = {"istio-integrator.charmhub.io/served": "enabled"}
RATE = 20_000 / 600
"""Pods that end in a second, unless told otherwise."""
AT_ONCE = 100
"""Objects in one transaction of etcd, which takes 128 at most."""
EVERY = 5.0
"""Seconds from one point of a graph to the next."""
GRAPHS = bench_shutdown.ROOT / "build/bench/pods.json"


def namespace(number: int) -> dict[str, Any]:
    """Return a namespace that somebody has labelled."""
    name = f"bench-{number}"
    metadata = {"name": name, "uid": f"ns-{number}", "labels": SERVED}
    spec = {"finalizers": ["kubernetes"]}
    head = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    return {**head, "spec": spec, "status": {"phase": "Active"}}


def pod(number: int) -> dict[str, Any]:
    """Return a pod of a Job whose payload runs; what no field holds, annotations do."""
    found = bench_shutdown.injected(pods, number)
    metadata, spec = found["metadata"], found["spec"]
    metadata["namespace"] = f"bench-{number % NAMESPACES}"
    metadata["annotations"] |= spec.pop("filler")
    spec["tolerations"] = [{"operator": "Exists"}]
    # Without their Job the garbage collector would take them away.
    del metadata["resourceVersion"], metadata["ownerReferences"]
    return found


class Etcd:
    """Writes objects where the API server has them, in the JSON that it reads as well."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def put(self, plural: str, items: Iterator[dict[str, Any]]) -> None:
        """Write objects, which must be new."""
        batch: list[Any] = []
        for item in items:
            metadata = item["metadata"]
            key = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            pair = {"key": f"/registry/{plural}/{key}", "value": json.dumps(item)}
            batch.append(
                {name: base64.b64encode(each.encode()).decode() for name, each in pair.items()}
            )
            if len(batch) == AT_ONCE:
                await self._send(batch)
                batch = []
        await self._send(batch)

    async def _send(self, batch: list[Any]) -> None:
        body = {"success": [{"requestPut": each} for each in batch]}
        async with self._session.post(f"{self._url}/v3/kv/txn", json=body) as answer:
            assert answer.status == 200, await answer.text()


class Node:
    """Answers for the kubelet: notes who is asked for, and has that pod's proxy end."""

    def __init__(self, api: kubernetes.Api) -> None:
        self._api = api
        self.asked: dict[str, float] = {}
        self.written: list[float] = []
        self._began: dict[str, float] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def finish(self, number: int) -> None:
        """Have the payload of a pod end."""
        name = f"job-{number}"
        self._began[name] = time.monotonic()
        await self._patch(number, main=pods.ended())
        self.written.append(time.monotonic() - self._began[name])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one connection of the API server."""
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.match(rb"\S+ /portForward/[^/]+/(job-(\d+))", head)
        if found and (name := found[1].decode()) not in self.asked:
            self.asked[name] = time.monotonic() - self._began[name]
            task = asyncio.create_task(
                self._patch(
                    int(found[2]), main=pods.ended(), proxy=pods.ended(), phase="Succeeded"
                )
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        writer.write(b"HTTP/1.1 500 None\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def _patch(
        self, number: int, *, main: Any, proxy: Any = None, phase: str = "Running"
    ) -> None:
        of = pod(number)
        states = of["status"]["containerStatuses"]
        for each, state in zip(states, (main, proxy), strict=True):
            if state:
                each["state"] = {
                    "terminated": {**state["terminated"], "containerID": each["containerID"]}
                }
        path = f"/api/v1/namespaces/{of['metadata']['namespace']}/pods/job-{number}/status"
        body = {"status": {"phase": phase, "containerStatuses": states}}
        kind = "application/merge-patch+json"
        await self._api.request("PATCH", path, body=body, content_type=kind)

    async def waited(self, first: int, count: int, seconds: float = 120) -> list[float]:
        """Return the latencies of some pods when all of them were asked for."""
        names = [f"job-{number}" for number in range(first, first + count)]
        await until(lambda: all(name in self.asked for name in names), seconds)
        return sorted(self.asked[name] for name in names)


class Unit:
    """A reconciler, as a unit runs it."""

    def __init__(self, number: int, kubeconfig: Path, stack: contextlib.ExitStack) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process = bench_shutdown.unit(number, kubeconfig, model="bench-0", port=self.port)
        stack.callback(self.end, signal.SIGKILL)
        self.took = Process(self.process.pid)

    async def watching(self, session: aiohttp.ClientSession, count: int) -> None:
        """Wait until so many pods are under watch."""
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{self.port}/metrics") as answer:
                    text = await answer.text()
            except aiohttp.ClientError:
                text = ""
            found = re.findall(r"^sidecar_lifecycle_pods\{.*\} (\S+)$", text, re.MULTILINE)
            if sum(map(float, found)) >= count:
                return
            await asyncio.sleep(0.1)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it."""
        self.process.send_signal(number)
        self.process.wait()


@contextlib.asynccontextmanager
async def _closing(stack: contextlib.ExitStack) -> AsyncIterator[None]:
    with stack:
        yield


async def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for plain state."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - plain state
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def node(api: kubernetes.Api, testbed: cluster.Testbed) -> AsyncIterator[Node]:
    """Have nodes that the API server can ask, all of them one listener."""
    made = Node(api)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pki = testbed.state_dir / "pki"
    context.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        kind = "application/merge-patch+json"
        for number in range(bench_shutdown.NODES):
            name = f"node-{number}"
            await api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            path = f"/api/v1/nodes/{name}/status"
            await api.request("PATCH", path, body={"status": status}, content_type=kind)
        yield made


class Graphs:
    """What a run looks like over time, as panels of a dashboard."""

    _PANELS = (
        ("from a pod's end to the question for its port", "s", ("median", "99 of 100")),
        ("pods that end in a second", "reqps", ("ended", "asked for")),
        ("processors", "short", ("reconciler", "kube-apiserver")),
        ("memory of the reconciler", "bytes", ("reconciler",)),
    )

    def __init__(self, where: Node, unit: Process, server: Process) -> None:
        self._where, self._unit, self._server = where, unit, server
        self._points: list[tuple[float, dict[str, float]]] = []

    async def follow(self) -> None:
        """Add a point every few seconds, until cancelled."""
        took = Process(self._unit.number), Process(self._server.number)
        ended, asked, now = len(self._where.written), len(self._where.asked), time.monotonic()
        began = now
        while True:
            await asyncio.sleep(EVERY)
            before, now = now, time.monotonic()
            # A dictionary keeps the order in which they were asked for.
            new = sorted(list(self._where.asked.values())[asked:]) or [float("nan")]
            point = {
                "median": statistics.median(new),
                "99 of 100": new[int(len(new) * 0.99)],
                "ended": (len(self._where.written) - ended) / (now - before),
                "asked for": (len(self._where.asked) - asked) / (now - before),
                "reconciler": took[0].used() / (now - before),
                "kube-apiserver": took[1].used() / (now - before),
                "memory": self._unit.megabytes() * 1e6,
            }
            ended, asked = len(self._where.written), len(self._where.asked)
            self._points.append((now - began, point))

    def write(self, path: Path) -> None:
        """Write them in the shape that docs/dashboard_picture.py draws."""
        panels: list[dict[str, Any]] = []
        for number, (title, unit, names) in enumerate(self._PANELS):
            series = [
                {
                    "name": name,
                    "values": [
                        (at, point["memory" if unit == "bytes" else name])
                        for at, point in self._points
                    ],
                }
                for name in names
            ]
            place = {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8}
            head = {"title": title, "type": "timeseries", "unit": unit, "place": place}
            panels.append({**head, "series": series})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(panels))


async def ending(where: Node, first: int, count: int, rate: float, graphs: Graphs) -> list[float]:
    """Have pods end, so many a second; return how long each waited to be asked for."""
    following = asyncio.create_task(graphs.follow())
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            tasks.create_task(where.finish(first + number))
    waited = await where.waited(first, count)
    following.cancel()
    return waited


def shown(seconds: list[float]) -> str:
    """Write what is usual and what is seldom, in milliseconds."""
    found = (
        seconds[0],
        statistics.median(seconds),
        seconds[int(len(seconds) * 0.99)],
        seconds[-1],
    )
    return " / ".join(f"{1000 * each:.0f}" for each in found)


async def measure(testbed: cluster.Testbed, sizes: list[int], seconds: float, rate: float) -> None:
    """Print what each size costs, then what taking over does."""
    state = str(testbed.state_dir)
    server, store = Process.of("kube-apiserver", state), Process.of("etcd", state)
    found = re.search(r"--listen-client-urls=(\S+)", store.words)
    assert found
    present = used = left = 0
    units = contextlib.ExitStack()
    async with (
        kubernetes.Api.from_kubeconfig(testbed.kubeconfig) as api,
        aiohttp.ClientSession() as session,
        node(api, testbed) as where,
        _closing(units),
    ):
        etcd = Etcd(found[1].partition(",")[0], session)
        await etcd.put("namespaces", map(namespace, range(NAMESPACES)))
        for size in sizes:
            await etcd.put("pods", (pod(number) for number in range(present, size + used)))
            present = size + used
            before = server.megabytes()
            server.used()
            began = time.monotonic()
            unit = Unit(0, testbed.kubeconfig, units)
            await unit.watching(session, size)
            took, cpu = time.monotonic() - began, unit.took.used()
            print(
                f"{size} pods: seen after {took:.1f} s, {cpu:.1f} s CPU,"
                f" {unit.took.megabytes():.0f} MB; API server {server.used():.1f} s CPU,"
                f" {before:.0f} to {server.megabytes():.0f} MB,"
                f" {server.megabytes('VmHWM'):.0f} at most",
                flush=True,
            )
            await asyncio.sleep(seconds / 3)
            print(f"  idle {unit.took.used() / seconds * 3000:.0f} millicores", flush=True)
            where.written.clear()
            graphs = Graphs(where, unit.took, server)
            waited = await ending(where, used, min(size // 2, int(rate * seconds)), rate, graphs)
            graphs.write(GRAPHS)
            used += len(waited)
            left = size - len(waited)
            print(
                f"  {len(waited)} ending, {rate:.0f} a second: {shown(waited)} ms,"
                f" the write alone {shown(sorted(where.written))} ms;"
                f" {1000 * unit.took.used() / len(waited):.1f} ms CPU each,"
                f" {unit.took.megabytes('VmHWM'):.0f} MB at most",
                flush=True,
            )
            unit.end()
        for number in (signal.SIGTERM, signal.SIGKILL):
            leader = Unit(0, testbed.kubeconfig, units)
            await leader.watching(session, left)
            other = Unit(1, testbed.kubeconfig, units)
            await other.watching(session, left)
            await where.finish(used)
            await where.waited(used, 1)
            leader.end(number)
            began = time.monotonic()
            await where.finish(used + 1)
            await where.waited(used + 1, 1)
            print(f"taken over {time.monotonic() - began:.1f} s after {number.name}", flush=True)
            other.end()
            used, left = used + 2, left - 2


def main() -> None:
    """Measure."""
    parser = command_line.parser(
        "bench/bench_pods.py", __doc__, "python bench/bench_pods.py 20000 40000"
    )
    parser.add_argument("sizes", nargs="*", type=int, default=[20_000, 40_000], metavar="PODS")
    parser.add_argument("--seconds", type=float, default=60, help="in which pods end")
    parser.add_argument("--rate", type=float, default=RATE, help="pods that end in a second")
    given: argparse.Namespace = parser.parse_args()
    testbed = cluster.Testbed("bench-pods")
    testbed.up(cluster.Options(control_plane_only=True))
    try:
        asyncio.run(measure(testbed, given.sizes, given.seconds, given.rate))
    finally:
        testbed.down()


if __name__ == "__main__":
    main()
