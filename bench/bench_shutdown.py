"""How many proxies the reconciler stops per second of one core, and in how much memory.

The cluster is simulated by the unit tests' apiserver, in a process of its own, without TLS: it
sends watch events of the size of a real injected pod (some 8 KB), answers the port-forward over
WebSocket and reports the proxy's end at once. So wall time is mostly the simulation's; what counts
is the CPU time of the reconciler's process per pod, which must not grow with their number.

`--others` adds pods that do not concern it, and one change of each while the proxies are stopped.

`--profile FILE` writes there instead where that time goes; `docs/pictures.py` draws it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lib"), str(ROOT / "workload")]

from integrator_contract import service  # noqa: E402
from testbed import command_line  # noqa: E402

NODES = 100
FILLER = {f"filler-{number}": "x" * 200 for number in range(30)}


async def simulate(count: int, others: int) -> None:
    """Serve that many pods; change the others and finish them all at a line."""
    from tests.unit.workload import fake_apiserver, pods  # noqa: PLC0415

    cluster = fake_apiserver.FakeApiserver()
    loop = asyncio.get_running_loop()
    async with cluster as client:
        cluster.namespace("bench")
        for number in range(count):
            cluster.put("pods", injected(pods, number))
        for number in range(others):
            cluster.put("pods", unconcerned(pods, number))
        print(client.server, flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        for number in range(others):
            cluster.put("pods", unconcerned(pods, number))
            if number % 50 == 0:
                await asyncio.sleep(0)
        for number in range(count):
            cluster.set_state("bench", f"job-{number}", "main", pods.ended())
            if number % 50 == 0:
                await asyncio.sleep(0)
        await loop.run_in_executor(None, sys.stdin.readline)


def injected(pods: Any, number: int) -> dict[str, Any]:
    """Return a pod of a Job as istiod and the kubelet leave it, some 8 KB."""
    name = f"job-{number}"
    init = pods.ended()
    init["terminated"] |= {"containerID": f"containerd://{number:064x}", "reason": "Completed"}
    pod = pods.pod_json(
        pods.running(),
        name=name,
        uid=f"5f0e8a8c-0000-4000-8000-{number:012x}",
        namespace="bench",
        node=f"node-{number % NODES}",
        annotations={"sidecar.istio.io/status": "x" * 300},
        init=[pods.container("istio-init")],
        init_statuses=[pods.status("istio-init", init)],
        conditions=[
            {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        ownerReferences=[
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": name,
                "uid": name,
                "controller": True,
            }
        ],
        creationTimestamp="2026-01-01T00:00:00Z",
    )
    for status in pod["status"]["containerStatuses"]:
        status["containerID"] = f"containerd://{status['name']}{number:056x}"
    pod["status"]["podIP"] = f"10.1.{number // 250}.{number % 250}"
    pod["spec"]["filler"] = FILLER
    return pod


def unconcerned(pods: Any, number: int) -> dict[str, Any]:
    """Return a pod of a Deployment without a sidecar, as large."""
    pod = injected(pods, number)
    pod["metadata"] |= {"name": f"web-{number}", "uid": f"web-{number}", "labels": {"app": "web"}}
    pod["metadata"]["ownerReferences"][0] |= {"kind": "ReplicaSet"}
    pod["spec"]["restartPolicy"] = "Always"
    del pod["spec"]["containers"][1]
    del pod["status"]["containerStatuses"][1]
    return pod


def _arguments(what: str, count: int, others: int = 0) -> list[str]:
    return [what, str(count), "--others", str(others)]


def _megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def measure(count: int, others: int = 0) -> dict[str, float]:
    """Run the reconciler against that many pods and return the figures."""
    from sidecar_lifecycle.shell import logs, run  # noqa: PLC0415
    from sidecar_lifecycle.shell import settings as options  # noqa: PLC0415
    from sidecar_lifecycle.shell.kube.client import Client  # noqa: PLC0415

    logs.configure("error")
    run.tune_garbage_collection()
    figures = {"pods": count, "rss_idle_mb": _megabytes()}
    simulation = subprocess.Popen(  # noqa: ASYNC220 - before anything is measured
        [sys.executable, __file__, *_arguments("--simulate", count, others)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert simulation.stdin is not None
    assert simulation.stdout is not None
    server = simulation.stdout.readline().strip()
    settings = options.ServiceSettings(model="bench", application="bench", unit="bench/0")
    program = run.Program(
        Client(server, token=lambda: "t"),
        options.Live(settings),
        listen=("127.0.0.1", 0),
        port=0,
    )
    task = asyncio.create_task(program.run())
    view, began = program.shutdown.view, time.process_time()
    source = program.shutdown.pods
    await _until(lambda: len(view) == count and source.live)
    figures["cpu_listing_s"] = time.process_time() - began
    figures["rss_watching_mb"] = _megabytes()
    cpu, wall = time.process_time(), time.monotonic()
    simulation.stdin.write("finish\n")
    simulation.stdin.flush()
    most = 0.0
    while len(view):
        most = max(most, _megabytes())
        await asyncio.sleep(0.05)
    figures["cpu_s"] = time.process_time() - cpu
    figures["wall_s"] = time.monotonic() - wall
    figures["stops_per_core_s"] = count / figures["cpu_s"]
    figures["cpu_ms_per_pod"] = 1000 * figures["cpu_s"] / count
    figures["rss_most_mb"] = max(most, _megabytes())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    simulation.stdin.close()
    simulation.wait()
    return figures


async def takeover(number: signal.Signals) -> float:
    """End the first of two units; return when the second has stopped ten proxies."""
    from tests.unit.workload import fake_apiserver, pods  # noqa: PLC0415

    cluster = fake_apiserver.FakeApiserver()
    names = [f"job-{index}" for index in range(10)]
    async with cluster as client:
        cluster.namespace("bench")
        for name in names:
            running = pods.pod_json(pods.running(), name=name, uid=name, namespace="bench")
            cluster.put("pods", running)
        with tempfile.TemporaryDirectory() as folder:
            kubeconfig = Path(folder, "kubeconfig")
            text = _KUBECONFIG.format(server=client.server)
            kubeconfig.write_text(text)  # noqa: ASYNC240 - before anything is measured
            first, second = unit(0, kubeconfig), unit(1, kubeconfig)
            await asyncio.sleep(5)
            first.send_signal(number)
            began = time.monotonic()
            for name in names:
                cluster.set_state("bench", name, "main", pods.ended())
            await _until(
                lambda: all(pod["status"]["phase"] == "Succeeded" for pod in cluster.all("pods"))
            )
            took = time.monotonic() - began
            for process in (first, second):
                process.kill()
                process.wait()
            return took


_KUBECONFIG = """
{{apiVersion: v1, kind: Config, current-context: x,
  clusters: [{{name: x, cluster: {{server: "{server}"}}}}],
  users: [{{name: x, user: {{token: t}}}}],
  contexts: [{{name: x, context: {{cluster: x, user: x}}}}]}}
"""


def unit(
    number: int, kubeconfig: Path, *, model: str = "bench", port: int = 0
) -> subprocess.Popen[bytes]:
    """Start the service of a unit, with its settings beside the kubeconfig."""
    settings = kubeconfig.with_name(f"settings-{number}.json")
    told = service.Options(
        model=model, application="bench", unit=f"bench/{number}", log_level="error"
    )
    settings.write_text(told.document())
    command = [sys.executable, "-m", "tests.workload_access", str(kubeconfig), "run"]
    return subprocess.Popen(
        [*command, "--settings", str(settings), f"--listen=127.0.0.1:{port}", "--port=0"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'workload'}:{ROOT / 'lib'}"},
    )


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - plain state
        await asyncio.sleep(0.02)


def profile(count: int, stacks: Path) -> None:
    """Write down where the time goes while that many proxies are stopped."""
    import process  # noqa: PLC0415

    command = [sys.executable, __file__, *_arguments("--one", count)]
    subprocess.run([*process.profiled(stacks), *command], check=True)
    # Imports are another thing, and take longer where more is installed than the image has.
    lines = stacks.read_text().splitlines(keepends=True)
    within = [(line, line.partition("_run_once")[2]) for line in lines]
    stacks.write_text("".join(line for line, rest in within if rest and "<module>" not in rest))


def main() -> int:
    """Measure each size in a process of its own and print a table."""
    parser = command_line.parser(
        "bench/bench_shutdown.py", __doc__, "python bench/bench_shutdown.py 100 1000"
    )
    parser.add_argument("sizes", nargs="*", type=int, default=[100, 1000, 10000], metavar="PODS")
    parser.add_argument("--others", type=int, default=0, metavar="PODS", help="without a sidecar")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="for stacks")
    parser.add_argument("--simulate", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.simulate:
        asyncio.run(simulate(arguments.simulate, arguments.others))
        return 0
    if arguments.profile:
        profile(arguments.sizes[0], arguments.profile.absolute())
        return 0
    if arguments.one:
        figures = asyncio.run(measure(arguments.one, arguments.others))
        print(json.dumps(figures))
        return 0
    print("A simulated cluster: CPU time and memory of the reconciler's process")
    print("  pods   stops/core·s   CPU ms/pod   wall s   idle MB   watching MB   most MB")
    for size in arguments.sizes:
        output = subprocess.run(
            [sys.executable, __file__, *_arguments("--one", size, arguments.others)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        figures = json.loads(output.splitlines()[-1])
        print(
            f"{size:>6} {figures['stops_per_core_s']:>14.0f} {figures['cpu_ms_per_pod']:>12.2f}"
            f" {figures['wall_s']:>8.1f} {figures['rss_idle_mb']:>9.0f}"
            f" {figures['rss_watching_mb']:>13.0f} {figures['rss_most_mb']:>9.0f}",
            flush=True,
        )
    for number in (signal.SIGTERM, signal.SIGKILL):
        took = sorted(asyncio.run(takeover(number)) for _ in range(3))
        seconds = " / ".join(f"{each:.1f}" for each in took)
        print(f"second unit: 10 proxies are stopped {seconds} s after the first's {number.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
