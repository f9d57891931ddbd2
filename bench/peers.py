"""What others do about finished proxies, to compare ours with: `peers.py WAY KUBECONFIG`.

`exec` does what the oldest published controller for this problem does. It reacts to every change
of any pod: as soon as one container has terminated while the proxy runs, it executes the quit
command in the proxy's container. One worker, one pod after the other, no time limit, no second
look. (The original runs `sh -c "curl …"`; this image has neither, so it is
`pilot-agent request POST quitquitquit`, which starts a process in the container just the same.)

`forward` is the least that a port-forward takes: each pod whose payload has ended gets its
`POST /quitquitquit` at once, all of them in flight together, with no second look, no Event and no
retry. It stops proxies that are still needed; it is here for its speed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / each) for each in (".", "lib", "workload")]

import structlog  # noqa: E402
from sidecar_lifecycle.model import types  # noqa: E402
from sidecar_lifecycle.shell import logs  # noqa: E402
from sidecar_lifecycle.shell.kube import client, errors, streams, watch  # noqa: E402
from sidecar_lifecycle.shell.shutdown import sources, stop  # noqa: E402

from tests import workload_access  # noqa: E402

PROXY = "istio-proxy"
PORT = 15020
log = structlog.get_logger(__name__)

Key = tuple[str, str]


def is_ready_for_cleanup(pod: types.Pod) -> bool:
    """Return whether the oldest peer would act: a container has ended and the proxy has not."""
    states = {status.name: status.state for status in pod.status.containerStatuses}
    proxy = states.pop(PROXY, None)
    if proxy is None or proxy.terminated is not None:
        return False
    return any(state.terminated is not None for state in states.values())


async def by_exec(connection: client.Client) -> None:
    """Watch all pods and work through a queue."""
    queue: asyncio.Queue[Key] = asyncio.Queue()
    latest: dict[Key, types.Pod] = {}
    seen: set[Key] = set()

    async def follow() -> None:
        async for change in watch.Watch(connection, types.Pod).changes():
            if change.object is None:
                log.info("watching")
                continue
            key = (change.object.metadata.namespace or "", change.object.metadata.name)
            if change.kind == "deleted":
                latest.pop(key, None)
                continue
            latest[key] = change.object
            if is_ready_for_cleanup(change.object) and key not in seen:
                seen.add(key)
                log.info("stopping proxy", pod="/".join(key))
                queue.put_nowait(key)

    async def work() -> None:
        while True:
            key = await queue.get()
            pod = latest.get(key)
            if pod is None or not is_ready_for_cleanup(pod):
                continue
            try:
                await streams.run_command(connection, *key, PROXY, stop.COMMAND, deadline=3600)
                result = "acknowledged"
            except errors.KubeError as error:
                result = str(error)
            log.info("stop attempted", pod="/".join(key), result=result)
            if result != "acknowledged":
                queue.put_nowait(key)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        tasks.create_task(work())


async def by_port_forward(connection: client.Client) -> None:
    """Watch the pods that matter and stop each at once."""
    seen: set[str] = set()

    async def quit_proxy(namespace: str, name: str) -> None:
        try:
            async with streams.port_forward(
                connection, namespace, name, PORT, deadline=60
            ) as forward:
                code = await forward.post(stop.PATH)
            result = "acknowledged" if code == 200 else str(code)
        except errors.KubeError as error:
            result = str(error)
        log.info("stop attempted", pod=f"{namespace}/{name}", result=result)

    async with asyncio.TaskGroup() as tasks:
        pods = watch.Watch(connection, types.Pod, fields=sources.FIELDS)
        async for change in pods.changes():
            pod = change.object
            if change.kind == "synced":
                log.info("watching")
            if pod is None or change.kind == "deleted" or pod.metadata.uid in seen:
                continue
            if is_ready_for_cleanup(pod):
                seen.add(pod.metadata.uid)
                log.info("stopping proxy", pod=f"{pod.metadata.namespace}/{pod.metadata.name}")
                tasks.create_task(quit_proxy(pod.metadata.namespace or "", pod.metadata.name))


async def main() -> None:
    """Watch and work until killed."""
    logs.configure("info")
    ways = {"exec": by_exec, "forward": by_port_forward}
    await ways[sys.argv[1]](workload_access.connect(sys.argv[2]))


if __name__ == "__main__":
    asyncio.run(main())
