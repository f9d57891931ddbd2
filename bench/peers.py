"""Stop finished proxies by the least that a port-forward takes: `bench.peers KUBECONFIG`.

Each pod of which a container has ended gets its `POST /quitquitquit` at once, all of them in
flight together, with no second look, no Event and no retry. It stops proxies that are still
needed, so it serves only to compare its speed.
"""

from __future__ import annotations

import asyncio
import sys

import structlog
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import logs
from sidecar_lifecycle.shell.kube import client, errors, streams, watch
from sidecar_lifecycle.shell.shutdown import sources, stop

from tests import workload_access

PROXY = "istio-proxy"
PORT = 15020
log = structlog.get_logger(__name__)


def has_ended(pod: types.Pod) -> bool:
    """Return whether a container has ended and the proxy has not."""
    states = {status.name: status.state for status in pod.status.containerStatuses}
    proxy = states.pop(PROXY, None)
    if proxy is None or proxy.terminated is not None:
        return False
    return any(state.terminated is not None for state in states.values())


async def stop_at_once(connection: client.Client) -> None:
    """Watch the pods that matter and stop each at once."""
    seen: set[str] = set()

    async def quit_proxy(namespace: str, name: str) -> None:
        try:
            async with streams.open_port_forward(
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
            if has_ended(pod):
                seen.add(pod.metadata.uid)
                log.info("stopping proxy", pod=f"{pod.metadata.namespace}/{pod.metadata.name}")
                tasks.create_task(quit_proxy(pod.metadata.namespace or "", pod.metadata.name))


async def main() -> None:
    """Watch and work until killed."""
    logs.configure_logs("info")
    await stop_at_once(workload_access.connect(sys.argv[1]))


if __name__ == "__main__":
    asyncio.run(main())
