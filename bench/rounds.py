"""One round: Jobs that wait for a signal, end when they are told, and what was seen of each.

The ends of payload and proxy processes are the kernel's (a pidfd each); what the API shows comes
from a watch; when a controller saw a pod and had its answer comes from its log. All on one clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

NAMESPACE = "bench"
SERVED = {"istio-injection": "enabled", "istio-integrator.charmhub.io/served": "enabled"}
CPU = {"sidecar.istio.io/proxyCPU": "10m"}
KINDS = {
    "none": {"sidecar.istio.io/inject": "false"},
    "native": {"sidecar.istio.io/nativeSidecar": "true"},
    "classic": {"sidecar.istio.io/nativeSidecar": "false"},
}
WAIT = """
import pathlib, sys, time
go = pathlib.Path("/go/at")
while not go.exists():
    time.sleep(0.1)
time.sleep(max(0, float(go.read_text()) + float(sys.argv[1]) - time.time()))
"""
ANSWERS = ("acknowledged", "unanswered")
"""Results of a try after which the proxy ends: some end before their answer is out."""
STARTED = 240
"""Seconds for dozens of pods to start."""


@dataclasses.dataclass
class Ending:
    """The end of one Job, as seconds of the machine's clock; 0 where something did not happen."""

    kind: str
    payload_exit: float = 0
    """The payload's process has ended, says the kernel."""
    payload_seen: float = 0
    """The API shows it."""
    stoppable: float = 0
    """The controller has seen it."""
    acknowledged: float = 0
    """The proxy has answered the stop."""
    proxy_exit: float = 0
    proxy_seen: float = 0
    pod_ended: float = 0
    """The API shows the pod Succeeded."""
    complete: float = 0
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
        proxies = [each.proxy_exit for each in self.endings if each.proxy_exit]
        return max(proxies) - min(each.payload_exit for each in self.endings) if proxies else 0


def job(
    name: str, delay: float, *, namespace: str, image: str, kind: str, go: str
) -> dict[str, Any]:
    """Return a Job that ends so many seconds after the time in a file, once that is there."""
    from testbed.kit import workloads  # noqa: PLC0415

    main = workloads.container("main", image, ["python3", "-c", WAIT, str(delay)])
    main["volumeMounts"] = [{"name": "go", "mountPath": "/go"}]
    template = workloads.template(
        [main],
        restart_policy="Never",
        labels={**({"sidecar.istio.io/inject": "false"} if kind == "none" else {})},
        annotations={**CPU, **KINDS[kind]},
    )
    template["spec"]["volumes"] = [{"name": "go", "hostPath": {"path": go}}]
    return workloads.job(name, namespace, template)


def processes(names: set[str]) -> Iterator[tuple[str, str, int]]:
    """Yield pod, program and process id of the containers of these pods."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().split(b"\0")[0]
            program = Path(command.decode(errors="replace")).name
            if program not in ("pilot-agent", "python3"):
                continue
            for entry in (folder / "environ").read_bytes().split(b"\0"):
                name = entry.removeprefix(b"HOSTNAME=").decode(errors="replace")
                if entry.startswith(b"HOSTNAME=") and name in names:
                    yield name, program, int(folder.name)


class Exits:
    """When processes end, as the kernel tells."""

    def __init__(self) -> None:
        self.at: dict[tuple[str, str], float] = {}

    def follow(self, key: tuple[str, str], process: int) -> None:
        """Note when a process ends."""
        loop = asyncio.get_running_loop()
        descriptor = os.pidfd_open(process)

        def ended() -> None:
            self.at[key] = time.time()
            loop.remove_reader(descriptor)
            os.close(descriptor)

        loop.add_reader(descriptor, ended)


def watcher(ended: dict[str, float]) -> Any:
    """Return an observer that also notes when pods have first been seen to have Succeeded."""
    from testbed.kit import observer  # noqa: PLC0415

    class Watcher(observer.Observer):
        async def add(self, event: str, item: dict[str, Any]) -> None:
            if item["kind"] == "Pod" and item.get("status", {}).get("phase") == "Succeeded":
                ended.setdefault(item["metadata"]["name"], time.time())
            await super().add(event, item)

    return Watcher(clock=time.time)


@dataclasses.dataclass
class Batch:
    """Jobs whose pods are running, and what was seen of them since."""

    go: Path
    """The folder in which they find when to end."""
    kinds: dict[str, str]
    """Of sidecars, by the Job's name."""
    watching: Any
    begin: float
    """When the watch began."""
    ended: dict[str, float]
    """When pods have first been seen to have Succeeded."""
    pods: list[Any]
    exits: Exits

    def end(self) -> None:
        """Have the first of them end in a second."""
        scratch = self.go / ".at"
        scratch.write_text(str(time.time() + 1))
        scratch.rename(self.go / "at")

    async def complete(self, within: float) -> None:
        """Wait until all are Complete."""

        def all_complete() -> bool:
            lines = [self.watching.job(pod.namespace, _job_of(pod)) for pod in self.pods]
            return all(line and line.succeeded_at for line in lines)

        await self.watching.until(all_complete, within, f"{len(self.pods)} Jobs complete")
        await asyncio.sleep(0.3)

    def endings(self, log: str) -> list[Ending]:
        """Return what was seen of each.

        Args:
            log: of the controller.
        """
        seen, answered = read_log(log)
        found: list[Ending] = []
        for pod in self.pods:
            proxy, line = pod.proxy, self.watching.job(pod.namespace, _job_of(pod))
            found.append(
                Ending(
                    kind=self.kinds[_job_of(pod)],
                    payload_exit=self.exits.at[pod.name, "python3"],
                    payload_seen=self.begin + _first_end(pod.payload[0]),
                    stoppable=seen.get(pod.name, 0),
                    acknowledged=answered.get(pod.name, 0),
                    proxy_exit=self.exits.at.get((pod.name, "pilot-agent"), 0),
                    proxy_seen=self.begin + _first_end(proxy) if proxy else 0,
                    pod_ended=self.ended.get(pod.name, 0),
                    complete=self.begin + line.succeeded_at,
                )
            )
        return found


@dataclasses.dataclass
class Bench:
    """A testbed with a namespace to measure in."""

    api: Any
    image: str
    namespace: str = NAMESPACE
    count: int = 0

    async def round(self, kinds: Sequence[str], log: Path | None, gap: float = 0) -> Round:
        """Have a Job of each of these kinds end, together or one by one.

        Args:
            kinds: one for each Job.
            log: of the controller, if one runs.
            gap: seconds between their ends.
        """
        async with self.running(kinds, gap) as batch:
            batch.end()
            await batch.complete(STARTED + gap * len(kinds))
        text = await asyncio.to_thread(log.read_text) if log else ""
        return Round(batch.endings(text))

    @contextlib.asynccontextmanager
    async def running(self, kinds: Sequence[str], gap: float = 0) -> AsyncIterator[Batch]:
        """Have a Job of each of these kinds run until the batch is told to end, then be gone.

        Args:
            kinds: one for each Job.
            gap: seconds between their ends.
        """
        self.count += 1
        prefix, ended = f"r{self.count}-", dict[str, float]()
        watching = watcher(ended)
        begin = time.time() - watching.now
        of_jobs = {f"{prefix}{index}": kind for index, kind in enumerate(kinds)}
        with tempfile.TemporaryDirectory(prefix="bench-") as go:
            os.chmod(go, 0o755)  # noqa: PTH101  the payload may run as anybody
            jobs = [
                job(
                    name,
                    index * gap,
                    namespace=self.namespace,
                    image=self.image,
                    kind=kind,
                    go=go,
                )
                for index, (name, kind) in enumerate(of_jobs.items())
            ]

            def all_running() -> list[Any] | None:
                pods = watching.timeline.select(self.namespace, prefix=prefix)
                running = [
                    pod for pod in pods if all(line.now.state == "running" for line in _long(pod))
                ]
                return running if len(running) == len(kinds) else None

            def all_gone() -> bool:
                left = watching.timeline.select(self.namespace, prefix=prefix)
                return all(pod.deleted for pod in left)

            async with watching.following(self.api):
                await asyncio.gather(*(self.api.create(each) for each in jobs))
                pods = await watching.until(all_running, STARTED, f"{len(kinds)} pods running")
                exits = Exits()
                await asyncio.sleep(2)  # the start of the last ones is over
                for pod, program, process in processes({pod.name for pod in pods}):
                    exits.follow((pod, program), process)
                try:
                    yield Batch(Path(go), of_jobs, watching, begin, ended, pods, exits)
                finally:
                    await asyncio.gather(
                        *(self.api.delete("Job", name, self.namespace) for name in of_jobs)
                    )
                await watching.until(all_gone, STARTED, "pods gone")


def _job_of(pod: Any) -> str:
    return pod.name.rpartition("-")[0]


def _first_end(line: Any) -> float:
    return next(each.start for each in line.intervals if each.seen.state.has_ended)


def _long(pod: Any) -> list[Any]:
    """Return the lines of payload and proxy, init containers that end left out."""
    return [line for line in pod.containers.values() if line.role != "init"]


def read_log(text: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return when each pod was first seen to be stoppable, and when its proxy answered.

    Args:
        text: Of the log; Pebble begins each line with the time and the service.
    """
    seen: dict[str, float] = {}
    answered: dict[str, float] = {}
    for line in text.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line[max(0, line.find("{")) :])
            pod = entry["pod"].rpartition("/")[2]
            at = datetime.datetime.fromisoformat(entry["time"]).timestamp()
            if entry["message"] == "stopping proxy":
                seen.setdefault(pod, at)
            elif entry["message"] == "stop attempted" and entry["result"] in ANSWERS:
                answered.setdefault(pod, at)
    return seen, answered
