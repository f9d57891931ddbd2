"""How fast Jobs complete on a real node: without a sidecar, with one, with us, with a peer.

Starts a testbed with classic sidecars (as root), or uses one that is up (`--name`). In each round
a number of Jobs wait for a signal and then end at the same instant. The ends of payload and proxy
processes are the kernel's (a pidfd each); what the API shows comes from a watch; when a controller
saw a pod and had its answer comes from its log. All on one clock.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "workload")]

NAMESPACE = "bench"
SERVED = {"istio-injection": "enabled", "istio-integrator.charmhub.io/lifecycle": "enabled"}
CPU = {"sidecar.istio.io/proxyCPU": "10m"}
KINDS = {
    "none": {"sidecar.istio.io/inject": "false"},
    "native": {"sidecar.istio.io/nativeSidecar": "true"},
    "classic": {"sidecar.istio.io/nativeSidecar": "false"},
}
WAIT = """
import pathlib, time
go = pathlib.Path("/go/at")
while not go.exists():
    time.sleep(0.1)
time.sleep(max(0, float(go.read_text()) - time.time()))
"""


@dataclasses.dataclass(frozen=True)
class Figures:
    """One round, in seconds."""

    acknowledged: list[float]
    """From the moment at which the controller saw the end to its answer, by pod."""
    exits: list[float]
    """From there to the end of the proxy's process."""
    drained: float
    """From the first payload's end to the last proxy's, both as the kernel tells."""
    felt: list[float]
    """From a payload's end to the Job Complete, as a watch shows it."""
    cpu: float = 0
    megabytes: float = 0


def job(name: str, image: str, kind: str, go: str) -> dict[str, Any]:
    """Return a Job that ends at the time in a file, once that is there."""
    from demo import workloads  # noqa: PLC0415

    main = workloads.container("main", image, ["python3", "-c", WAIT])
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


@dataclasses.dataclass
class Bench:
    """A testbed with a namespace to measure in."""

    testbed: Any
    api: Any
    image: str
    count: int = 0

    async def round(self, number: int, kind: str, log: Path | None) -> Figures:
        """Have that many Jobs end together and return what was seen."""
        from demo import observer  # noqa: PLC0415

        self.count += 1
        with tempfile.TemporaryDirectory(prefix="bench-") as go:
            os.chmod(go, 0o755)  # noqa: PTH101  the payload may run as anybody
            watching = observer.Observer(clock=time.time)
            begin = time.time() - watching.now
            prefix = f"r{self.count}-"
            names = [f"{prefix}{index}" for index in range(number)]
            async with watching.following(self.api):
                await asyncio.gather(
                    *(self.api.create(job(name, self.image, kind, go)) for name in names)
                )

                def all_running() -> list[Any] | None:
                    pods = watching.timeline.select(NAMESPACE, prefix=prefix)
                    running = [
                        pod
                        for pod in pods
                        if all(line.now.state == "running" for line in _long(pod))
                    ]
                    return running if len(running) == number else None

                pods = await watching.until(all_running, 180, f"{number} pods running")
                exits = Exits()
                await asyncio.sleep(2)  # the start of the last ones is over
                for pod, program, process in processes({pod.name for pod in pods}):
                    exits.follow((pod, program), process)
                scratch = Path(go) / ".at"
                scratch.write_text(str(time.time() + 1))
                scratch.rename(Path(go) / "at")

                def all_complete() -> list[Any] | None:
                    lines = [watching.job(NAMESPACE, name) for name in names]
                    done = [line for line in lines if line and line.succeeded_at]
                    return done if len(done) == number else None

                jobs = await watching.until(all_complete, 180, f"{number} Jobs complete")
                await asyncio.sleep(0.3)
                complete = {line.name: line.succeeded_at + begin for line in jobs}
                await asyncio.gather(*(self.api.delete("Job", name, NAMESPACE) for name in names))

                def all_gone() -> bool:
                    return all(
                        pod.deleted for pod in watching.timeline.select(NAMESPACE, prefix=prefix)
                    )

                await watching.until(all_gone, 120, "pods gone")
        payload = {pod: at for (pod, program), at in exits.at.items() if program == "python3"}
        proxy = {pod: at for (pod, program), at in exits.at.items() if program == "pilot-agent"}
        seen, answered = read_log(log, {pod.name for pod in pods}) if log else ({}, {})
        owner = {pod.name: pod.name.rpartition("-")[0] for pod in pods}
        return Figures(
            acknowledged=sorted(answered[pod] - seen[pod] for pod in answered),
            exits=sorted(proxy[pod] - seen[pod] for pod in seen if pod in proxy),
            drained=max(proxy.values(), default=0) - min(payload.values()) if proxy else 0,
            felt=sorted(complete[owner[pod]] - at for pod, at in payload.items()),
        )


def _long(pod: Any) -> list[Any]:
    """Return the lines of payload and proxy, init containers that end left out."""
    return [line for line in pod.containers.values() if line.role != "init"]


def read_log(path: Path, pods: set[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Return when each pod was first seen to be stoppable, and when its proxy answered."""
    seen: dict[str, float] = {}
    answered: dict[str, float] = {}
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            pod = entry["pod"].rpartition("/")[2]
            at = datetime.datetime.fromisoformat(entry["time"]).timestamp()
            if pod not in pods:
                continue
            if entry["message"] == "stopping proxy":
                seen.setdefault(pod, at)
            elif entry["message"] == "stop attempted" and entry["result"] == "acknowledged":
                answered.setdefault(pod, at)
    return seen, answered


async def reconciler(kubeconfig: str, per_node: int) -> None:
    """Run ours with that many stops in flight on a node."""
    import prometheus_client  # noqa: PLC0415
    from sidecar_lifecycle import logs, run  # noqa: PLC0415
    from sidecar_lifecycle import settings as options  # noqa: PLC0415
    from sidecar_lifecycle.kube import client  # noqa: PLC0415
    from sidecar_lifecycle.shutdown import controller, slots  # noqa: PLC0415

    logs.configure("info")
    run.tune_garbage_collection()
    settings = options.Settings(
        model=NAMESPACE,
        application="bench",
        unit=f"bench/{os.getpid()}",
        listen="127.0.0.1:0",
        convergence="off",
    )
    program = run.Program(
        client.connect(kubeconfig), settings, prometheus_client.CollectorRegistry()
    )
    limits = slots.Limits(per_node=per_node) if per_node else slots.Limits()
    program.shutdown = controller.Controller(
        program.client, settings, program.leadership, program.recorder, limits=limits
    )
    await run._until_signalled(program.run())  # noqa: SLF001


@contextlib.asynccontextmanager
async def candidate(argv: list[str]) -> AsyncIterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a controller while the context lasts; its log goes to a file."""
    with tempfile.NamedTemporaryFile(prefix="bench-", suffix=".log") as file:
        process = subprocess.Popen([sys.executable, *argv], stderr=file)  # noqa: ASYNC220
        try:
            await asyncio.sleep(4)
            yield process, Path(file.name)
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait)


def usage(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Return CPU seconds and resident megabytes of a process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def quantile(values: list[float], share: float) -> float:
    """Return the nearest-rank quantile of sorted values, 0 without any."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0


def four(values: list[float]) -> str:
    """Return minimum, median, 99th percentile and maximum in milliseconds."""
    if not values:
        return f"{'-':>24}"
    picked = (values[0], quantile(values, 0.5), quantile(values, 0.99), values[-1])
    return " ".join(f"{value * 1000:5.0f}" for value in picked).rjust(24)


def line(title: str, figures: Figures) -> str:
    """Return one line of the table."""
    felt = four(figures.felt)
    drained = f"{figures.drained:7.2f}" if figures.drained else f"{'-':>7}"
    return (
        f"{title:<34}{four(figures.acknowledged)} |{four(figures.exits)} |{drained} |{felt} |"
        f"{figures.cpu:5.2f} {figures.megabytes:5.0f}"
    )


HEAD = (
    f"{'ms: min median p99 max':<34}{'seen→acknowledged':>24} |{'seen→proxy exit':>24} |"
    f"{'drain s':>7} |{'payload exit→Complete':>24} |{'CPU s':>5} {'MB':>5}"
)


async def measure(arguments: argparse.Namespace, testbed: Any, image: str) -> None:
    """Run all rounds and print them."""
    from demo import kubernetes, workloads  # noqa: PLC0415

    kubeconfig = str(testbed.kubeconfig)
    print(HEAD, flush=True)
    async with kubernetes.Api.from_kubeconfig(testbed.kubeconfig) as api:
        await api.apply(workloads.namespace(NAMESPACE, SERVED))
        bench = Bench(testbed, api, image)

        async def rounds(title: str, argv: list[str], counts: list[int]) -> None:
            async with candidate(argv) as (process, log):
                for count in counts:
                    before, _ = usage(process)
                    figures = await bench.round(count, "classic", log)
                    after, megabytes = usage(process)
                    figures = dataclasses.replace(figures, cpu=after - before, megabytes=megabytes)
                    print(line(f"{title}, {count} at once", figures), flush=True)

        async def several(title: str, kind: str, count: int, log: Path | None) -> None:
            results = [await bench.round(1, kind, log) for _ in range(count)]
            merged = Figures(
                acknowledged=sorted(value for each in results for value in each.acknowledged),
                exits=sorted(value for each in results for value in each.exits),
                drained=0,
                felt=sorted(value for each in results for value in each.felt),
            )
            print(line(f"{title}, one, {count} times", merged), flush=True)

        ours = [__file__, "--reconciler", kubeconfig]
        for per_node in arguments.sweep:
            await rounds(f"{per_node} in flight", [*ours, "--per-node", str(per_node)], [30])
        if arguments.compare:
            await rounds("ours", ours, arguments.counts)
            peer = [str(Path(__file__).with_name("oldest_peer.py")), kubeconfig]
            await rounds("exec, one at a time", peer, arguments.counts)
        if arguments.felt:
            for kind in ("none", "native"):
                print(line(f"{kind}, 30 at once", await bench.round(30, kind, None)), flush=True)
                await several(kind, kind, arguments.felt, None)
            async with candidate(ours) as (_, log):
                figures = await bench.round(30, "classic", log)
                print(line("classic and ours, 30 at once", figures), flush=True)
                await several("classic and ours", "classic", arguments.felt, log)


def main() -> int:
    """Measure on a testbed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--name", help="of a testbed that is up, instead of an own one")
    parser.add_argument("--counts", type=_numbers, default=[30, 50], metavar="N,…")
    parser.add_argument("--sweep", type=_numbers, default=[], metavar="N,…")
    parser.add_argument("--felt", type=int, default=5, metavar="TIMES")
    parser.add_argument("--compare", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--reconciler", metavar="KUBECONFIG", help=argparse.SUPPRESS)
    parser.add_argument("--per-node", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reconciler:
        asyncio.run(reconciler(arguments.reconciler, arguments.per_node))
        return 0
    if os.geteuid() != 0:
        print("bench_shutdown_node: starting a node needs root, left out", file=sys.stderr)
        return 0
    from testbed import cluster, limits  # noqa: PLC0415

    testbed = cluster.Testbed(arguments.name or f"bench-{os.getpid()}")
    try:
        testbed.up(testbed.options if arguments.name else cluster.Options(classic_sidecars=True))
        image = testbed.load_images(["app"])["app"]
        with limits.many_sidecars():
            asyncio.run(measure(arguments, testbed, image))
    finally:
        if not arguments.name:
            testbed.down()
    return 0


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


if __name__ == "__main__":
    sys.exit(main())
