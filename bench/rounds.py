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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

NAMESPACE = "bench"
SERVED = {"istio-injection": "enabled", "istio-integrator.charmhub.io/lifecycle": "enabled"}
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


def job(name: str, image: str, kind: str, go: str, delay: float) -> dict[str, Any]:
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
    return workloads.job(name, NAMESPACE, template)


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
class Bench:
    """A testbed with a namespace to measure in."""

    api: Any
    image: str
    count: int = 0

    async def round(self, kinds: Sequence[str], log: Path | None, gap: float = 0) -> Round:
        """Have a Job of each of these kinds end, together or one by one.

        Args:
            kinds: one for each Job.
            log: of the controller, if one runs.
            gap: seconds between their ends.
        """
        self.count += 1
        ended: dict[str, float] = {}
        with tempfile.TemporaryDirectory(prefix="bench-") as go:
            os.chmod(go, 0o755)  # noqa: PTH101  the payload may run as anybody
            watching = watcher(ended)
            begin = time.time() - watching.now
            prefix = f"r{self.count}-"
            names = [f"{prefix}{index}" for index in range(len(kinds))]
            jobs = [
                job(name, self.image, kind, go, index * gap)
                for index, (name, kind) in enumerate(zip(names, kinds, strict=True))
            ]
            async with watching.following(self.api):
                await asyncio.gather(*(self.api.create(each) for each in jobs))

                def all_running() -> list[Any] | None:
                    pods = watching.timeline.select(NAMESPACE, prefix=prefix)
                    running = [
                        pod
                        for pod in pods
                        if all(line.now.state == "running" for line in _long(pod))
                    ]
                    return running if len(running) == len(kinds) else None

                pods = await watching.until(all_running, STARTED, f"{len(kinds)} pods running")
                exits = Exits()
                await asyncio.sleep(2)  # the start of the last ones is over
                for pod, program, process in processes({pod.name for pod in pods}):
                    exits.follow((pod, program), process)
                scratch = Path(go) / ".at"
                scratch.write_text(str(time.time() + 1))
                scratch.rename(Path(go) / "at")

                def all_complete() -> bool:
                    lines = [watching.job(NAMESPACE, name) for name in names]
                    return all(line and line.succeeded_at for line in lines)

                within = STARTED + gap * len(kinds)
                await watching.until(all_complete, within, f"{len(kinds)} Jobs complete")
                await asyncio.sleep(0.3)
                await asyncio.gather(*(self.api.delete("Job", name, NAMESPACE) for name in names))

                def all_gone() -> bool:
                    left = watching.timeline.select(NAMESPACE, prefix=prefix)
                    return all(pod.deleted for pod in left)

                await watching.until(all_gone, STARTED, "pods gone")
        seen, answered = read_log(log) if log else ({}, {})
        endings: list[Ending] = []
        for pod in pods:
            name = pod.name.rpartition("-")[0]
            proxy, line = pod.proxy, watching.job(NAMESPACE, name)
            endings.append(
                Ending(
                    kind=kinds[names.index(name)],
                    payload_exit=exits.at[pod.name, "python3"],
                    payload_seen=begin + _first_end(pod.payload[0]),
                    stoppable=seen.get(pod.name, 0),
                    acknowledged=answered.get(pod.name, 0),
                    proxy_exit=exits.at.get((pod.name, "pilot-agent"), 0),
                    proxy_seen=begin + _first_end(proxy) if proxy else 0,
                    pod_ended=ended.get(pod.name, 0),
                    complete=begin + line.succeeded_at,
                )
            )
        return Round(endings)


def _first_end(line: Any) -> float:
    return next(each.start for each in line.intervals if each.seen.state.has_ended)


def _long(pod: Any) -> list[Any]:
    """Return the lines of payload and proxy, init containers that end left out."""
    return [line for line in pod.containers.values() if line.role != "init"]


def read_log(path: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return when each pod was first seen to be stoppable, and when its proxy answered."""
    seen: dict[str, float] = {}
    answered: dict[str, float] = {}
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            pod = entry["pod"].rpartition("/")[2]
            at = datetime.datetime.fromisoformat(entry["time"]).timestamp()
            if entry["message"] == "stopping proxy":
                seen.setdefault(pod, at)
            elif entry["message"] == "stop attempted" and entry["result"] == "acknowledged":
                answered.setdefault(pod, at)
    return seen, answered
