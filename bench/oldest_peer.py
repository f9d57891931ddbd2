"""What the oldest published controller for this problem does, to compare ours with.

It reacts to every change of any pod: as soon as one container has terminated while the proxy runs,
it executes the quit command in the proxy's container. One worker, one pod after the other, no time
limit, no second look. (The original runs `sh -c "curl …"`; this image has neither, so it is
`pilot-agent request POST quitquitquit`, which starts a process in the container just the same.)
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "workload")]

import structlog  # noqa: E402
from sidecar_lifecycle import logs  # noqa: E402
from sidecar_lifecycle.kube import client, errors, streams, types, watch  # noqa: E402

PROXY = "istio-proxy"
COMMAND = ["pilot-agent", "request", "POST", "quitquitquit"]
log = structlog.get_logger(__name__)


def is_ready_for_cleanup(pod: types.Pod) -> bool:
    """Return whether the peer would act: a container has ended and the proxy has not."""
    states = {status.name: status.state for status in pod.status.containerStatuses}
    proxy = states.pop(PROXY, None)
    if proxy is None or proxy.terminated is not None:
        return False
    return any(state.terminated is not None for state in states.values())


async def main() -> None:
    """Watch and work until killed."""
    logs.configure("info")
    connection = client.connect(sys.argv[1])
    queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    latest: dict[tuple[str, str], types.Pod] = {}
    seen: set[tuple[str, str]] = set()

    async def follow() -> None:
        async for change in watch.watch(connection, types.Pod, namespace="*"):
            if change.object is None:
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
            namespace, name = key = await queue.get()
            pod = latest.get(key)
            if pod is None or not is_ready_for_cleanup(pod):
                continue
            try:
                done = await streams.run_command(
                    connection, namespace, name, PROXY, COMMAND, deadline=3600
                )
                result = "acknowledged" if done.exit_code == 0 else "refused"
            except errors.KubeError as error:
                result = str(error)
            log.info("stop attempted", pod="/".join(key), result=result)
            if result != "acknowledged":
                queue.put_nowait(key)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        tasks.create_task(work())


if __name__ == "__main__":
    asyncio.run(main())
