"""Jobs complete, and none too early, while parts of the cluster and of ours are killed or hang.

The reconciler runs here as processes of its own, started from the checkout, for a model of its
own: so it can be killed, stopped and looked into. Each payload calls its peer just before its end.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import aiohttp
import pytest
from prometheus_client import parser

from demo import kubernetes, observer, workloads
from tests.e2e import shutdown_cases as cases

pytestmark = [pytest.mark.long, pytest.mark.cluster("today"), pytest.mark.timeout(300)]

MODEL = "chaos"
WORKLOAD = pathlib.Path(__file__).parents[2] / "workload"
AWAY = (aiohttp.ClientError, kubernetes.ApiError, TimeoutError)
STARTED = 60
"""Seconds for a dozen pods to start."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclasses.dataclass
class Unit:
    """One `sidecar-lifecycle run`."""

    number: int
    kubeconfig: pathlib.Path
    log: pathlib.Path
    port: int = dataclasses.field(default_factory=free_port)
    process: subprocess.Popen | None = None

    def start(self):
        options = {
            "model": MODEL,
            "application": MODEL,
            "unit": f"{MODEL}/{self.number}",
            "kubeconfig": self.kubeconfig,
            "lifecycle-namespaces": "model",
            "convergence": "off",
            "listen": f"127.0.0.1:{self.port}",
        }
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sidecar_lifecycle.cli", "run", *words],
                env={**os.environ, "PYTHONPATH": str(WORKLOAD)},
                stderr=log,
            )

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    async def metrics(self):
        url = f"http://127.0.0.1:{self.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            text = await answer.text()
        return {
            sample.name.removeprefix("sidecar_lifecycle_"): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples
            if not sample.labels
        }

    async def leads(self):
        with contextlib.suppress(aiohttp.ClientError):
            return (await self.metrics())["leader"] == 1
        return False

    def lines(self, message):
        lines = self.log.read_text().splitlines()
        entries = [json.loads(line) for line in lines if line.startswith("{")]
        return [entry for entry in entries if entry.get("message") == message]

    def descriptors(self):
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))


@pytest.fixture
async def world(node, api):
    """A namespace in the mesh with a fresh counting peer."""
    made = cases.World(MODEL, "", "", node.charms.payload_image, {})
    await api.apply(workloads.namespace(MODEL, {"istio-injection": "enabled"}), *cases.peer(made))
    await cases.peer_is_ready(api, MODEL)
    yield made
    await api.delete("Deployment", cases.PEER, MODEL)
    for job in await api.list("Job", MODEL):
        await api.delete("Job", job["metadata"]["name"], MODEL)

    async def is_clear():
        pods = await api.list("Pod", MODEL)
        return not [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    await observer.eventually(is_clear, 60, "the pods of the test gone")


@pytest.fixture
async def units(node, tmp_path):
    """Two units; the first leads."""
    both = [Unit(number, node.testbed.kubeconfig, tmp_path / f"{number}.log") for number in (0, 1)]
    both[0].start()
    try:
        await observer.eventually(both[0].leads, 40, "the first unit leads")
    except observer.NotObserved:
        both[0].kill()
        raise
    both[1].start()
    yield both
    running = [unit for unit in both if unit.process.poll() is None]
    for unit in running:
        unit.send(signal.SIGCONT)
        unit.process.terminate()
    codes = [unit.process.wait(20) for unit in running]
    for unit in both:
        print(unit.log.read_text()[-4000:])
    assert set(codes) <= {0}


async def start(api, world, count, *, seconds=lambda number: 3):
    """Create Jobs with their payloads, and wait until all run."""
    names = [f"job-{number}" for number in range(count)]
    for number, name in enumerate(names):
        template = world.template(
            world.tries(name, "0", seconds(number)),
            # As the charm's admission would have it.
            **{"proxy.istio.io/config": "holdApplicationUntilProxyStarts: true"},
        )
        await api.apply(*cases.job(world, name, template))

    async def all_started():
        pods = await api.list("Pod", MODEL, labels="job-name")
        states = [
            status["state"]
            for pod in pods
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
            jobs = await api.list("Job", MODEL)
            done = {job["metadata"]["name"] for job in jobs if job["status"].get("succeeded")}
            return done >= set(names)
        return False

    await observer.eventually(all_complete, within, f"{names} complete")
    return time.monotonic() - began


async def none_was_early(api, names):
    """Each payload reached its peer at its end, and each proxy ended after it."""
    counted = await cases.counted(api, MODEL)
    assert {name: counted.get(name) for name in names} == dict.fromkeys(names, 1)
    for pod in await api.list("Pod", MODEL, labels="job-name"):
        ends = {
            status["name"]: status["state"]["terminated"]
            for status in pod["status"]["containerStatuses"]
        }
        assert ends["main"]["exitCode"] == 0
        assert ends["main"]["finishedAt"] <= ends["istio-proxy"]["finishedAt"]


async def nothing_leaks(unit, before):
    """The process has nothing under way, and no more open files than before."""

    async def is_idle():
        values = await unit.metrics()
        return values["stops_pending"] == values["stops_in_flight"] == 0

    await observer.eventually(is_idle, 20, "nothing pending")
    # Connections are kept for a while; a handful more than at first is no leak.
    await observer.eventually(
        lambda: asyncio.to_thread(lambda: unit.descriptors() <= before + 8), 40, "files closed"
    )


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


async def test_killed_reconciler_finds_what_ended_meanwhile(api, world, units):
    units[1].kill()
    names = await start(api, world, 8)
    units[0].kill()
    await asyncio.sleep(5)
    jobs = await api.list("Job", MODEL)
    assert not all(job["status"].get("succeeded") for job in jobs)
    units[0].start()
    units[1].start()
    await complete(api, names, 45)
    await none_was_early(api, names)


async def test_killed_leader_is_followed_by_the_other_unit(api, world, units, figures):
    names = await start(api, world, 12, seconds=lambda number: 2 + number / 2)
    await asyncio.sleep(3)
    units[0].kill()
    figures["chaos: 12 Jobs complete after the leader was killed, s"] = round(
        await complete(api, names, 60), 1
    )
    await none_was_early(api, names)
    before = units[1].descriptors()
    await nothing_leaks(units[1], before)


async def test_jobs_complete_through_a_restart_of_the_apiserver(api, world, units, node):
    before = units[0].descriptors()
    names = await start(api, world, 12, seconds=lambda number: 2 + number)
    await asyncio.to_thread(node.testbed.restart, "kube-apiserver")
    await complete(api, names, 90)
    await none_was_early(api, names)
    leader = units[0] if await units[0].leads() else units[1]
    await nothing_leaks(leader, before)


async def test_port_forward_that_hangs_is_replaced_by_exec(api, world, units, node):
    names = await start(api, world, 4, seconds=lambda number: 8)
    for process in of_pods(names[:1], ("pilot-agent",)):
        rule = ["-I", "INPUT", "-i", "lo", "-p", "tcp", "--dport", "15020", "-j", "DROP"]
        command = ["nsenter", "-t", str(process), "-n", "iptables", *rule]
        subprocess.run(command, check=True)  # noqa: ASYNC221  it takes milliseconds
    await complete(api, names, 60)
    await none_was_early(api, names)
    results = {(e["transport"], e["result"]) for e in units[0].lines("stop attempted")}
    assert ("port-forward", "timeout") in results
    assert ("exec", "acknowledged") in results
