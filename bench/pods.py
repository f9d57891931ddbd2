"""What many pods under watch cost: a real kube-apiserver, and the reconciler beside it.

There is a control plane and no node. Namespaces and pods are put into etcd as the kubelet would
leave them, some 8 KB each, in 2,000 namespaces that are served. Once the unit has seen all of
them, 33 of them a second end (20,000 in ten minutes): their status is patched, and the node that
they are on (one listener is all hundred of them) writes down when it is asked for a pod's port,
and has the proxy end. Latency is from the moment before the patch is sent to that question, so it
has the API server's part in it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import re
import ssl
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp

from bench import world
from bench.process import Process, Reconciler
from testbed import cluster, command_line, kubernetes
from tests.unit.workload import pods

NAMESPACES = 2000
SERVED = {"istio-integrator.charmhub.io/served": "enabled"}
RATE = 20_000 / 600
"""Pods that end in a second, unless told otherwise."""
AT_ONCE = 50
"""Objects in one transaction of etcd, which takes 128 at most."""
NODES = 100
FILLER = {f"filler-{number}": "x" * 200 for number in range(30)}


def namespace(number: int) -> dict[str, Any]:
    """Return a namespace that somebody has labelled."""
    name = f"bench-{number}"
    metadata = {"name": name, "uid": f"ns-{number}", "labels": SERVED}
    spec = {"finalizers": ["kubernetes"]}
    head = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    return {**head, "spec": spec, "status": {"phase": "Active"}}


def pod(number: int) -> dict[str, Any]:
    """Return a pod of a Job whose payload runs, some 8 KB as istiod and the kubelet leave it."""
    init = pods.ended()
    init["terminated"] |= {"containerID": f"containerd://{number:064x}", "reason": "Completed"}
    found = pods.pod_json(
        pods.running(),
        name=f"job-{number}",
        uid=f"5f0e8a8c-0000-4000-8000-{number:012x}",
        namespace=f"bench-{number % NAMESPACES}",
        node=f"node-{number % NODES}",
        annotations={"sidecar.istio.io/status": "x" * 300, **FILLER},
        init=[pods.container("istio-init")],
        init_statuses=[pods.status("istio-init", init)],
        conditions=[
            {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        creationTimestamp="2026-01-01T00:00:00Z",
    )
    for status in found["status"]["containerStatuses"]:
        status["containerID"] = f"containerd://{status['name']}{number:056x}"
    found["status"]["podIP"] = f"10.1.{number // 250}.{number % 250}"
    found["spec"]["tolerations"] = [{"operator": "Exists"}]
    # Without their Job the garbage collector would take them away.
    found["metadata"].pop("ownerReferences", None)
    del found["metadata"]["resourceVersion"]
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

    async def waited(self, first: int, count: int) -> list[float]:
        """Return the latencies of some pods when all of them were asked for."""
        names = [f"job-{number}" for number in range(first, first + count)]
        async with asyncio.timeout(120):
            while any(name not in self.asked for name in names):  # noqa: ASYNC110 - plain state
                await asyncio.sleep(0.01)
        return sorted(self.asked[name] for name in names)


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
        for number in range(NODES):
            name = f"node-{number}"
            await api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            path = f"/api/v1/nodes/{name}/status"
            await api.request("PATCH", path, body={"status": status}, content_type=kind)
        yield made


@dataclasses.dataclass(frozen=True)
class Figures:
    """What so many pods under watch cost: seconds, MB, millicores, and lists of seconds."""

    pods: int
    seen: float
    """From the unit's start until it has seen all."""
    cpu: float
    memory: float
    idle: float
    waited: list[float]
    """From each pod's end to the question for its port, in order."""
    written: list[float]
    """For the write of each pod's end, in order."""
    each: float
    """CPU time for each of these pods."""
    server_cpu: float
    """That of the API server until the unit has seen all."""

    def __str__(self) -> str:
        return (
            f"{self.pods} pods: seen after {self.seen:.1f} s, {self.cpu:.1f} s CPU (API server"
            f" {self.server_cpu:.1f}), {self.memory:.0f} MB, idle {self.idle:.0f} millicores\n"
            f"  {len(self.waited)} ending: {shown(self.waited)} ms, the write alone"
            f" {shown(self.written)} ms; {1000 * self.each:.1f} ms CPU each"
        )


def shown(seconds: list[float]) -> str:
    """Write least, median, 99th percentile and most in milliseconds."""
    middle, rare = statistics.median(seconds), seconds[int(len(seconds) * 0.99)]
    return " / ".join(f"{1000 * each:.0f}" for each in (seconds[0], middle, rare, seconds[-1]))


async def end_pods(where: Node, first: int, count: int, rate: float) -> list[float]:
    """Have pods end, so many a second; return how long each waited to be asked for."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            tasks.create_task(where.finish(first + number))
    return await where.waited(first, count)


async def measure(
    testbed: cluster.Testbed, sizes: list[int], seconds: float, rate: float
) -> AsyncIterator[Figures]:
    """Yield what each size costs, the smallest first."""
    state = str(testbed.state_dir)
    server, store = Process.of("kube-apiserver", state), Process.of("etcd", state)
    found = re.search(r"--listen-client-urls=(\S+)", store.words)
    assert found
    present = used = 0
    async with (
        kubernetes.Api.from_kubeconfig(testbed.kubeconfig) as api,
        aiohttp.ClientSession() as session,
        node(api, testbed) as where,
    ):
        etcd = Etcd(found[1].partition(",")[0], session)
        await etcd.put("namespaces", map(namespace, range(NAMESPACES)))
        for size in sizes:
            await etcd.put("pods", (pod(number) for number in range(present, size + used)))
            present = size + used
            server.used()
            began = time.monotonic()
            unit = Reconciler(testbed.kubeconfig, "bench-0", "error")
            try:
                async with asyncio.timeout(600):
                    while not await asyncio.to_thread(unit.is_ready):  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                took, cpu, memory = time.monotonic() - began, unit.used(), unit.held()
                listed = server.used()
                await asyncio.sleep(seconds / 3)
                idle = unit.used() / seconds * 3000
                where.written.clear()
                count = min(size // 2, int(rate * seconds))
                waited = await end_pods(where, used, count, rate)
                used += count
                each = unit.used() / count
            finally:
                unit.end()
            written = sorted(where.written)
            yield Figures(size, took, cpu, memory, idle, waited, written, each, listed)


async def collect(sizes: list[int], seconds: float, rate: float = RATE) -> list[Figures]:
    """Measure on a control plane of its own, and print each size."""
    found: list[Figures] = []
    with world.control_plane("bench-pods") as testbed:
        async for figures in measure(testbed, sizes, seconds, rate):
            print(figures, flush=True)
            found.append(figures)
    return found


def main() -> None:
    """Measure."""
    parser = command_line.parser("bench.pods", __doc__, "python -m bench.pods 20000 40000")
    parser.add_argument("sizes", nargs="*", type=int, default=[20_000, 40_000], metavar="PODS")
    parser.add_argument("--seconds", type=float, default=60, help="in which pods end")
    parser.add_argument("--rate", type=float, default=RATE, help="pods that end in a second")
    given = parser.parse_args()
    asyncio.run(collect(given.sizes, given.seconds, given.rate))


if __name__ == "__main__":
    main()
