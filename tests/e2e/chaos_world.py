"""The reconciler as processes that a test may kill, stop and look into, and Jobs for them.

They are started from the checkout, as the units of an application of their own.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import aiohttp

from integrator_contract import namespaces, service
from testbed import kubernetes, loopback
from testbed.kit import observer, workloads
from tests.e2e import metrics, shutdown_world

MODEL = "chaos"
ROOT = pathlib.Path(__file__).parents[2]
WORKLOAD = f"{ROOT}:{ROOT / 'workload'}:{ROOT / 'lib'}"
AWAY = (aiohttp.ClientError, kubernetes.ApiError, TimeoutError)
STARTED = 60
"""Seconds for a dozen pods to start."""
KEPT_OPEN = 8
"""Connections that are kept for the next request; so many more than at first are no leak."""
LONGEST_WAIT = 20
"""Seconds from a payload's end to its proxy's, of which draining takes five."""
HOLD = {"proxy.istio.io/config": "holdApplicationUntilProxyStarts: true"}
"""As the charm's admission would have it."""


@dataclasses.dataclass
class Unit:
    """One `sidecar-lifecycle run`."""

    number: int
    kubeconfig: pathlib.Path
    log: pathlib.Path
    port: int = dataclasses.field(default_factory=loopback.free_port)
    process: subprocess.Popen | None = None

    @property
    def name(self):
        return f"{MODEL}/{self.number}"

    def start(self):
        told = service.Options(
            model=MODEL,
            application=MODEL,
            unit=self.name,
            served_namespaces=namespaces.MODEL_ONLY,
            restart_pods="manual",
            log_level="debug",
        )
        settings = self.log.with_suffix(".json")
        settings.write_text(told.encode())
        words = ["--settings", settings, "--listen", f"127.0.0.1:{self.port}", "--port", "0"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.workload_access", self.kubeconfig, "run", *words],
                env={**os.environ, "PYTHONPATH": WORKLOAD},
                stderr=log,
            )

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def freeze(self):
        self.send(signal.SIGSTOP)

    def restore(self):
        """Undo what befell it."""
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
        else:
            self.start()

    def end(self):
        """Ask it to end, and return its exit code; None if it had ended."""
        if self.process is None or self.process.poll() is not None:
            return None
        self.send(signal.SIGCONT)
        self.process.terminate()
        return self.process.wait(20)

    async def metrics(self):
        url = f"http://127.0.0.1:{self.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            text = await answer.text()
        return metrics.read(text)

    async def is_ready(self):
        url = f"http://127.0.0.1:{self.port}/readyz"
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return answer.status == 200
        return False

    def lines(self, message):
        lines = self.log.read_text().splitlines()
        entries = [json.loads(line) for line in lines if line.startswith("{")]
        return [entry for entry in entries if entry.get("message") == message]

    def descriptors(self):
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))

    async def usage(self):
        """Open files and tasks of a process at rest."""
        return self.descriptors(), (await self.metrics())["tasks"]


async def start(api, world, count, *, seconds=lambda number: 3, prefix="job", asks=True):
    """Create Jobs with their payloads, which ask the peer just before their end.

    Returns their names when all run.
    """
    names = [f"{prefix}-{number}" for number in range(count)]
    for number, name in enumerate(names):
        sleeps = workloads.payload("sleep.py", seconds(number))
        main = (
            world.tries(name, "0", seconds(number))
            if asks
            else workloads.container("main", world.image, sleeps)
        )
        await api.apply(*shutdown_world.job(world, name, world.template(main, **HOLD)))

    async def all_started():
        states = [
            status["state"]
            for pod in await api.list("Pod", MODEL, labels=f"job-name in ({','.join(names)})")
            for status in pod["status"].get("containerStatuses", ())
            if status["name"] == "main"
        ]
        return len(states) == count and not any("waiting" in state for state in states)

    await observer.eventually(all_started, STARTED, "all payloads started")
    return names


async def complete(api, names, within):
    """Wait until the Jobs are Complete, whatever the apiserver does; return the seconds."""
    began = time.monotonic()

    async def all_complete():
        with contextlib.suppress(*AWAY):
            return await completed(api) >= set(names)
        return False

    await observer.eventually(all_complete, within, f"{names} complete")
    return round(time.monotonic() - began, 1)


async def completed(api):
    """The names of the Jobs that are Complete."""
    jobs = await api.list("Job", MODEL)
    return {job["metadata"]["name"] for job in jobs if job["status"].get("succeeded")}


async def none_was_early(api, names, within=float("inf")):
    """Each payload reached its peer at its end, and its proxy ended in so many seconds after."""
    counted = await shutdown_world.counted(api, MODEL)
    assert {name: counted.get(name) for name in names} == dict.fromkeys(names, 1)
    for pod in await api.list("Pod", MODEL, labels="job-name"):
        ends = {
            status["name"]: status["state"]["terminated"]
            for status in pod["status"]["containerStatuses"]
        }
        assert ends["main"]["exitCode"] == 0
        main, proxy = (
            datetime.datetime.fromisoformat(ends[name]["finishedAt"])
            for name in ("main", "istio-proxy")
        )
        assert 0 <= (proxy - main).total_seconds() <= within, pod["metadata"]["name"]


async def nothing_leaks(unit, before):
    """The unit has nothing under way, and no more files and tasks than before."""
    files, tasks = before
    now = {}

    async def is_at_rest():
        nonlocal now
        now = {**await unit.metrics(), "files": unit.descriptors()}
        pending = now["stops_pending"] or now["stops_in_flight"]
        return not pending and now["tasks"] <= tasks and now["files"] <= files + KEPT_OPEN

    try:
        await observer.eventually(is_at_rest, 60, "everything given back")
    except observer.NotObserved:
        assert now == {"files": files, "tasks": tasks}


def of_pods(names, programs=("pilot-agent", "envoy")):
    """The processes of those programs in the pods of these jobs."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program = pathlib.Path((folder / "cmdline").read_bytes().split(b"\0")[0].decode()).name
            if program not in programs:
                continue
            environment = (folder / "environ").read_bytes().split(b"\0")
            pod = next((e[9:].decode() for e in environment if e.startswith(b"HOSTNAME=")), "")
            if pod.rpartition("-")[0] in names:
                found.append(int(folder.name))
    return found
