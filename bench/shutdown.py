"""How fast proxies of Jobs are stopped on a real node: by this reconciler, and by another way.

Starts a testbed with classic sidecars, as root. A number of Jobs end at the same instant under
each controller in turn, several rounds of it, so that other work of the machine affects all. The
other one, `bench/peers.py`, is the least that a port-forward takes. `--beside CHECKOUT` adds the
reconciler of another checkout, such as an earlier one.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from bench import ROOT, jobs
from bench.process import Process, Reconciler
from testbed import cluster, command_line, kubernetes
from testbed.kit import timeline, workloads

OURS, FORWARD = "ours", "port-forward, all at once"


@contextlib.asynccontextmanager
async def running(kubeconfig: Path, checkout: Path | None) -> AsyncIterator[tuple[Process, Path]]:
    """Run the reconciler of a checkout, or without one the peer; its log goes to a file."""
    with tempfile.NamedTemporaryFile(prefix="bench-", suffix=".log") as file:
        log = Path(file.name)
        if checkout:
            ours = Reconciler(kubeconfig, jobs.NAMESPACE, "info", checkout, file)
            is_ready, end = ours.is_ready, ours.end
            process: Process = ours
        else:
            peer = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-m", "bench.peers", str(kubeconfig)], cwd=ROOT, stderr=file
            )
            process = Process(peer.pid)

            def is_ready() -> bool:
                return b'"watching"' in log.read_bytes()

            def end() -> None:
                peer.terminate()
                peer.wait()

        try:
            async with asyncio.timeout(60):
                while not await asyncio.to_thread(is_ready):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            yield process, log
        finally:
            await asyncio.to_thread(end)


async def compare(
    bench: jobs.Bench, kubeconfig: Path, count: int, times: int, beside: Path | None = None
) -> dict[str, list[jobs.Round]]:
    """Have so many Jobs end under every controller in turn; return its rounds by its title."""
    await bench.api.apply(workloads.namespace(jobs.NAMESPACE, jobs.SERVED))
    those = {OURS: ROOT, **({"beside": beside} if beside else {}), FORWARD: None}
    found: dict[str, list[jobs.Round]] = {title: [] for title in those}
    for turn in range(times):
        first = turn % len(those)
        for title in ([*those] * 2)[first : first + len(those)]:
            print(f"  round {turn + 1}: {title}, {count}", file=sys.stderr)
            async with running(kubeconfig, those[title]) as (took, log):
                result = await bench.round(count, log)
                cost = {"cpu": took.used(), "megabytes": took.held()}
            found[title].append(dataclasses.replace(result, **cost))
    return found


def times_between(rounds: Sequence[jobs.Round], first: str, second: str) -> list[float]:
    """Return the seconds from one moment to another of all endings, in order."""
    found = [each.between(first, second) for one in rounds for each in one.endings]
    return sorted(value for value in found if value is not None)


def line(title: str, rounds: Sequence[jobs.Round]) -> str:
    """Return the line of the table for a controller's rounds."""

    def four(first: str, second: str) -> str:
        values = times_between(rounds, first, second)
        shares = (0, 0.5, 0.99, 1)
        picked = [timeline.quantile(values, share) for share in shares] if values else []
        return " ".join(f"{value * 1000:5.0f}" for value in picked).rjust(23)

    drains = sorted(each.drained for each in rounds)
    drain = f"{statistics.median(drains):.2f} ({drains[0]:.2f}-{drains[-1]:.2f})"
    cpu = 1000 * sum(each.cpu for each in rounds) / sum(len(each.endings) for each in rounds)
    return (
        f"{title:<27}{four('stoppable', 'acknowledged')} |{four('stoppable', 'proxy')} |"
        f"{drain:>21} |{four('payload_exit', 'complete')} |{cpu:10.1f}"
        f" {max(each.megabytes for each in rounds):4.0f}"
    )


HEAD = (
    f"{'ms: min median p99 max':<27}{'seen→acknowledged':>23} |{'seen→proxy ended':>23} |"
    f"{'drain s (least-most)':>21} |{'payload end→Complete':>23} |{'CPU ms/pod':>10} {'MB':>4}"
)


def main() -> int:
    """Measure on a testbed."""
    parser = command_line.parser(
        "bench.shutdown", __doc__, "python -m bench.shutdown --count 10 --rounds 1"
    )
    parser.add_argument("--count", type=int, default=30, help="Jobs that end together")
    parser.add_argument("--rounds", type=int, default=3, metavar="TIMES")
    parser.add_argument(
        "--beside", type=Path, metavar="CHECKOUT", help="whose reconciler takes turns, too"
    )
    given = parser.parse_args()

    async def work(api: kubernetes.Api, image: str) -> None:
        kubeconfig = cluster.Testbed(f"bench-{os.getpid()}").kubeconfig
        bench = jobs.Bench(api, image)
        found = await compare(bench, kubeconfig, given.count, given.rounds, given.beside)
        print(f"\n{given.count} Jobs that end together, {given.rounds} rounds each\n{HEAD}")
        for title, rounds in found.items():
            print(line(title, rounds))

    return jobs.on_a_node("bench.shutdown", cluster.Options(classic_sidecars=True), work)


if __name__ == "__main__":
    sys.exit(main())
