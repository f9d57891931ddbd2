"""How long convergence takes beside a rollout restart of the same workloads, in the same run.

A real API server with the workloads' own controllers; a policy plays the injector, and a stand-in
for the kubelet reports a pod as Ready so many seconds after it came. First every workload has its
pod without a sidecar and convergence replaces it, so many workloads at a time; then all are
restarted as `kubectl rollout restart` does it, as many at a time, each awaited until it is whole.
What is left beside the pods' own time is what the one or the other needs between two pods.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import pathlib
import statistics
import sys
import time
from typing import Any

ELSEWHERE = "BENCH_CHECKOUT"
"""Names in the environment of a controller the checkout whose code it is."""
if ELSEWHERE in os.environ:
    sys.path[:0] = [f"{os.environ[ELSEWHERE]}/{each}" for each in ("workload", "lib")]
    import sidecar_lifecycle  # noqa: F401 - where it lies is decided now

# ruff: noqa: E402, I001 - each makes the next ones importable
import world

from sidecar_lifecycle.shell import logs
from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.convergence import controller

from testbed import command_line, kubernetes
from testbed.kit import workloads
from tests import workload_access
from tests.functional import convergence_world

KINDS = ("StatefulSet", "Deployment", "StatefulSet")
STARTS = 3.0
"""Seconds from a pod's creation until it is Ready."""


class World(convergence_world.World):
    """Whose pods need a while to start."""

    starts = STARTS

    def __init__(self, kubeconfig: pathlib.Path, api: kubernetes.Api, namespace: str) -> None:
        super().__init__(kubeconfig, api, namespace)
        self._came: dict[str, float] = {}

    def has_started(self, metadata: dict[str, Any]) -> bool:
        """Tell whether a pod has had its time since it was first seen."""
        now = time.monotonic()
        return now >= self._came.setdefault(metadata["uid"], now) + self.starts

    async def converge(
        self, names: list[str], at_once: int, kubeconfig: pathlib.Path, checkout: pathlib.Path
    ) -> float:
        """Return the seconds from the first eviction to the last Ready pod with a sidecar."""
        before = set(await self.injected())
        argv = [sys.executable, __file__, "--controller", self.namespace]
        argv += ["--at-once", str(at_once), "--kubeconfig", str(kubeconfig)]
        environment = {**os.environ, ELSEWHERE: str(checkout)}
        process = await asyncio.create_subprocess_exec(*argv, env=environment)
        began = 0.0
        while True:
            pods = await self.injected()
            if not began and set(pods) != before:
                began = time.monotonic()
            is_in = len(pods) == len(names) and all(pods.values())
            if is_in and len(await self.ready()) == len(names):
                break
            await asyncio.sleep(0.1)
        took = time.monotonic() - began
        process.terminate()
        await process.wait()
        return took

    async def ready(self) -> dict[str, set[str]]:
        """Return the UIDs of each application's pods, but nothing for one with a pod not Ready."""
        found: dict[str, set[str]] = {}
        for pod in await self.api.list("Pod", self.namespace):
            uids = found.setdefault(pod["metadata"]["labels"]["app"], set())
            uids.add(pod["metadata"]["uid"] if pod["status"].get("phase") == "Running" else "")
        return {name: uids for name, uids in found.items() if "" not in uids}

    async def roll_out(self, names: list[str], at_once: int) -> float:
        """Return the seconds that restarting takes."""
        slots = asyncio.Semaphore(at_once)
        mark = {"kubectl.kubernetes.io/restartedAt": str(time.time())}
        body = {"spec": {"template": {"metadata": {"annotations": mark}}}}

        async def restart(workload: str) -> None:
            name = workload.partition("/")[2]
            async with slots:
                old = (await self.ready())[name]
                await self.api.patch(*workload.split("/"), self.namespace, body)
                while old & (now := (await self.ready()).get(name, old)) or not now:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

        began = time.monotonic()
        await asyncio.gather(*map(restart, names))
        return time.monotonic() - began


async def control(kubeconfig: pathlib.Path, namespace: str, at_once: int) -> None:
    """Be convergence, in a process of its own."""
    given = options.ServiceSettings(
        model=namespace,
        application=convergence_world.APPLICATION,
        unit=f"{convergence_world.APPLICATION}/0",
        joined=True,
        leader=True,
        restart_max_unavailable=str(at_once),
    )
    await controller.run(
        workload_access.connect(kubeconfig),
        options.Live(given),
    )


async def measure(
    kubeconfig: pathlib.Path, count: int, at_once: int, checkout: pathlib.Path
) -> tuple[float, float]:
    """Return what both take, in a namespace of their own."""
    namespace = f"bench-convergence-{time.time():.0f}"
    async with kubernetes.Api.from_kubeconfig(kubeconfig) as api:
        subject = World(kubeconfig, api, namespace)
        await api.create(workloads.namespace(namespace))
        names = [f"{KINDS[n % len(KINDS)]}/app-{n}" for n in range(count)]
        subject.starts = 0.0
        for each in names:
            await subject.workload(*each.split("/"))
        await subject.join()
        subject.starts = STARTS
        async with subject.kubelet():
            ours = await subject.converge(names, at_once, kubeconfig, checkout)
            rollout = await subject.roll_out(names, at_once)
        await subject.remove()
        await api.delete("Namespace", namespace)
        return ours, rollout


def main() -> int:
    """Print both, and the ratio."""
    parser = command_line.parser(
        "bench/bench_convergence.py", __doc__, "python bench/bench_convergence.py --rounds 3"
    )
    parser.add_argument("--workloads", type=int, default=12, metavar="N")
    parser.add_argument("--at-once", type=int, default=2, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="TIMES")
    parser.add_argument(
        "--beside", type=pathlib.Path, metavar="CHECKOUT", help="whose code runs in turns, too"
    )
    parser.add_argument("--kubeconfig", type=pathlib.Path, help="of a control plane that is up")
    parser.add_argument("--controller", metavar="NAMESPACE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.controller:
        logs.configure("error")
        asyncio.run(control(given.kubeconfig, given.controller, given.at_once))
        return 0
    checkouts = {"this": world.ROOT} | ({"beside": given.beside} if given.beside else {})
    ratios: dict[str, list[float]] = {name: [] for name in checkouts}
    with contextlib.ExitStack() as stack:
        kubeconfig = given.kubeconfig
        if kubeconfig is None:
            kubeconfig, _ = stack.enter_context(world.served("bench-convergence"))
        for name, checkout in [*checkouts.items()] * given.rounds:
            subject = measure(kubeconfig, given.workloads, given.at_once, checkout)
            ours, rollout = asyncio.run(subject)
            ratios[name].append(ours / rollout)
            took = f"convergence {ours:6.1f} s   rollout {rollout:6.1f} s"
            print(f"{name:8}{took}   {ours / rollout:.2f} x", flush=True)
    for name, found in ratios.items():
        middle = statistics.median(found)
        print(f"{name:8}median {middle:.2f} x ({min(found):.2f} to {max(found):.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
