"""One round: Jobs that wait for a signal, end when they are told, and what was seen of each.

The ends of containers and Jobs come from a watch; when a controller saw a pod and had its answer
comes from its log. All on one clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from testbed import cluster, kubernetes, limits
from testbed.kit import observer, workloads

NAMESPACE = "bench"
SERVED = {"istio-injection": "enabled", "istio-integrator.charmhub.io/served": "enabled"}
NATIVE = {"sidecar.istio.io/nativeSidecar": "true"}
CLASSIC = {"sidecar.istio.io/nativeSidecar": "false", "sidecar.istio.io/proxyCPU": "10m"}
WAIT = """
import pathlib, time
go = pathlib.Path("/go/at")
while not go.exists():
    time.sleep(0.1)
time.sleep(max(0, float(go.read_text()) - time.time()))
"""
ANSWERS = ("acknowledged", "unanswered")
"""Results of a try after which the proxy ends: some end before their answer is out."""
STARTED = 240
"""Seconds for dozens of pods to start."""


@dataclasses.dataclass
class Ending:
    """The end of one Job, as seconds of the machine's clock; 0 where something did not happen."""

    payload: float
    """The API shows the payload's end."""
    stoppable: float
    """The controller has seen it."""
    acknowledged: float
    """The proxy has answered the stop."""
    proxy: float
    """The API shows the proxy's end."""
    complete: float
    """The API shows the Job Complete."""

    def between(self, first: str, second: str) -> float | None:
        """Return the seconds from one moment to another, None if one of them is missing."""
        begin, end = getattr(self, first), getattr(self, second)
        return end - begin if begin and end else None


@dataclasses.dataclass(frozen=True)
class Round:
    """All endings of a round."""

    endings: list[Ending]
    cpu: float = 0
    """CPU seconds of the controller."""
    megabytes: float = 0

    @property
    def drained(self) -> float:
        """Return the seconds from the first payload's end to the last proxy's."""
        begin = min(each.payload for each in self.endings)
        return max(each.proxy for each in self.endings) - begin


def make_job(name: str, image: str, go: str) -> dict[str, Any]:
    """Return a Job that ends at the time in a file, once the file is there."""
    main = workloads.container("main", image, ["python3", "-c", WAIT])
    main["volumeMounts"] = [{"name": "go", "mountPath": "/go"}]
    template = workloads.template([main], restart_policy="Never", annotations=CLASSIC)
    template["spec"]["volumes"] = [{"name": "go", "hostPath": {"path": go}}]
    return workloads.job(name, NAMESPACE, template)


@dataclasses.dataclass
class Bench:
    """A testbed with a namespace to measure in."""

    api: kubernetes.Api
    image: str
    count: int = 0

    async def round(self, count: int, log: Path) -> Round:
        """Have so many Jobs end together, and delete them.

        Args:
            count: Of Jobs.
            log: Of the controller.
        """
        self.count += 1
        prefix = f"r{self.count}-"
        watching = observer.Observer(clock=time.time)
        begin = time.time() - watching.now
        names = [f"{prefix}{index}" for index in range(count)]

        def pods() -> list[Any]:
            return list(watching.timeline.select(NAMESPACE, prefix=prefix))

        def all_running() -> list[Any] | None:
            running = [
                pod for pod in pods() if all(line.now.state == "running" for line in _long(pod))
            ]
            return running if len(running) == count else None

        def all_complete() -> bool:
            return all(completed(name) for name in names)

        def completed(name: str) -> float:
            line = watching.job(NAMESPACE, name)
            return (line and line.succeeded_at) or 0

        def all_gone() -> bool:
            return all(pod.deleted for pod in pods())

        with tempfile.TemporaryDirectory(prefix="bench-") as go:
            os.chmod(go, 0o755)  # noqa: PTH101  the payload may run as anybody
            async with watching.following(self.api):
                jobs = [make_job(name, self.image, go) for name in names]
                await asyncio.gather(*(self.api.create(each) for each in jobs))
                found = await watching.until(all_running, STARTED, f"{count} pods running")
                await asyncio.sleep(2)  # the start of the last ones is over
                scratch = Path(go) / ".at"
                scratch.write_text(str(time.time() + 1))
                scratch.rename(Path(go) / "at")
                await watching.until(all_complete, STARTED, f"{count} Jobs complete")
                await asyncio.sleep(0.3)
                await asyncio.gather(*(self.api.delete("Job", name, NAMESPACE) for name in names))
                await watching.until(all_gone, STARTED, "pods gone")
        seen, answered = read_log(await asyncio.to_thread(log.read_text))
        endings = [
            Ending(
                payload=begin + _first_end(pod.payload[0]),
                stoppable=seen.get(pod.name, 0),
                acknowledged=answered.get(pod.name, 0),
                proxy=begin + _first_end(pod.proxy),
                complete=begin + completed(pod.name.rpartition("-")[0]),
            )
            for pod in found
        ]
        return Round(endings)


def _first_end(line: Any) -> float:
    return next(each.start for each in line.intervals if each.seen.state.has_ended)


def _long(pod: Any) -> list[Any]:
    """Return the lines of payload and proxy."""
    return [line for line in pod.containers.values() if line.role != "init"]


def read_log(text: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return when each pod was first seen to be stoppable, and when its proxy answered."""
    seen: dict[str, float] = {}
    answered: dict[str, float] = {}
    for line in text.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            pod = entry["pod"].rpartition("/")[2]
            at = datetime.datetime.fromisoformat(entry["time"]).timestamp()
            if entry["message"] == "stopping proxy":
                seen.setdefault(pod, at)
            elif entry["message"] == "stop attempted" and entry["result"] in ANSWERS:
                answered.setdefault(pod, at)
    return seen, answered


def on_a_node(
    program: str,
    options: cluster.Options,
    work: Callable[[kubernetes.Api, str], Awaitable[None]],
) -> int:
    """Start a testbed with a node, as root, and give its API and the application's image."""
    if os.geteuid() != 0:
        print(f"{program}: starting a node needs root, left out", file=sys.stderr)
        return 0
    testbed = cluster.Testbed(f"bench-{os.getpid()}")

    async def connected() -> None:
        image = testbed.load_images(["app"])["app"]
        async with kubernetes.Api.from_kubeconfig(testbed.kubeconfig) as api:
            await work(api, image)

    try:
        testbed.up(options)
        with limits.many_sidecars():
            asyncio.run(connected())
    finally:
        testbed.down()
    return 0
