"""How fast Jobs complete on a real node: without a sidecar, with one, with us, with others.

Starts a testbed with classic sidecars (as root), or uses one that is up (`--name`). Part 1 lets a
number of Jobs end at the same instant under each controller in turn, several rounds of it, so
that what else the machine does falls on all of them alike. Part 2 is what people feel: from the
payload's end to the Job Complete, by kind of sidecar, and where that time goes.

  bench_shutdown_node.py                         ours, exec one at a time, plain port-forward
  bench_shutdown_node.py --beside CHECKOUT       and that of another checkout, such as an older one
  bench_shutdown_node.py --sweep 1,2,4,8,30      ours with so many in flight per node, too
  bench_shutdown_node.py --busy 2                beside two programs that never stop computing
  bench_shutdown_node.py --no-compare --felt 8   part 2 alone, eight Jobs of each kind
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / each) for each in (".", "lib", "workload", "bench")]

import rounds  # noqa: E402
from process import Process  # noqa: E402

from testbed import command_line  # noqa: E402

GAP = 5.206
"""Seconds between Jobs that end one by one. The kubelet looks once a second: with three kinds in
turn, those of one kind are 15.618 s apart, and so end at moments spread over its second."""
NEIGHBOUR = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(100_000))"
"""A program that computes for as long as the one that started it is there."""
PEERS = {"exec, one at a time": "exec", "port-forward, all at once": "forward"}
MOMENTS = {
    "none": ("payload_exit", "payload_seen", "pod_ended", "complete"),
    "native": ("payload_exit", "payload_seen", "proxy_exit", "pod_ended", "complete"),
    "classic": (
        *("payload_exit", "payload_seen", "acknowledged"),
        *("proxy_exit", "proxy_seen", "pod_ended", "complete"),
    ),
}
"""What happens one after the other, by kind of sidecar."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A controller to measure."""

    title: str
    argv: list[str]


async def reconciler(kubeconfig: str, per_node: int) -> None:
    """Run ours with that many stops in flight on a node."""
    import structlog  # noqa: PLC0415
    from sidecar_lifecycle.shell import logs, run  # noqa: PLC0415
    from sidecar_lifecycle.shell import settings as options  # noqa: PLC0415
    from sidecar_lifecycle.shell.shutdown import stops  # noqa: PLC0415

    from tests import workload_access  # noqa: PLC0415

    logs.configure("info")
    run.tune_garbage_collection()
    settings = options.ServiceSettings(
        model=rounds.NAMESPACE,
        application="bench",
        unit="bench/0",
        restart_pods="off",
    )
    live = options.Live(settings)
    if per_node:
        stops.PER_NODE = per_node
    program = run.Program(
        workload_access.connect(kubeconfig),
        live,
        listen=("127.0.0.1", 0),
        port=0,
    )

    async def announce() -> None:
        while not program.shutdown.pods.live:  # noqa: ASYNC110 - plain state
            await asyncio.sleep(0.1)
        structlog.get_logger().info("watching")

    announcing = asyncio.create_task(announce())
    await run._until_signalled(program.run())  # noqa: SLF001
    announcing.cancel()


@contextlib.asynccontextmanager
async def running(
    candidate: Candidate,
) -> AsyncIterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a controller while the context lasts; its log goes to a file."""
    with tempfile.NamedTemporaryFile(prefix="bench-", suffix=".log") as file:
        process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, *candidate.argv], stderr=file
        )
        try:
            log = Path(file.name)
            async with asyncio.timeout(30):
                while b'"watching"' not in log.read_bytes():  # noqa: ASYNC110, ASYNC240
                    await asyncio.sleep(0.1)
            yield process, log
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait)


@contextlib.contextmanager
def neighbours(number: int) -> Iterator[None]:
    """Have so many programs compute without a pause while the context lasts."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(os.getpid())])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def four(endings: Sequence[rounds.Ending], first: str, second: str) -> str:
    """Return minimum, median, 99th percentile and maximum of a time in milliseconds."""
    found = [each.between(first, second) for each in endings]
    values = sorted(value for value in found if value is not None)
    if not values:
        return f"{'-':>23}"
    from testbed.kit import timeline  # noqa: PLC0415

    picked = (
        values[0],
        timeline.quantile(values, 0.5),
        timeline.quantile(values, 0.99),
        values[-1],
    )
    return " ".join(f"{value * 1000:5.0f}" for value in picked).rjust(23)


HEAD = (
    f"{'ms: min median p99 max':<32}{'seen→acknowledged':>23} |{'seen→proxy exit':>23} |"
    f"{'drain s (least-most)':>21} |{'payload exit→Complete':>23} |{'CPU ms/pod':>10} {'MB':>4}"
)


def line(title: str, results: Sequence[rounds.Round]) -> str:
    """Return the line of the table for some rounds of one kind."""
    endings = [each for result in results for each in result.endings]
    drains = sorted(result.drained for result in results)
    drain = f"{statistics.median(drains):.2f} ({drains[0]:.2f}-{drains[-1]:.2f})"
    cpu = 1000 * sum(result.cpu for result in results) / len(endings)
    return (
        f"{title:<32}{four(endings, 'stoppable', 'acknowledged')} |"
        f"{four(endings, 'stoppable', 'proxy_exit')} |{drain:>21} |"
        f"{four(endings, 'payload_exit', 'complete')} |{cpu:10.1f}"
        f" {max(result.megabytes for result in results):4.0f}"
    )


async def compare(
    bench: rounds.Bench, candidates: list[Candidate], counts: list[int], times: int
) -> None:
    """Run every controller in turn, again and again, and print a line for each and each count."""
    found: dict[tuple[str, int], list[rounds.Round]] = {}
    for turn in range(times):
        for candidate in (
            candidates[turn % len(candidates) :] + candidates[: turn % len(candidates)]
        ):
            async with running(candidate) as (process, log):
                for count in counts:
                    print(f"  round {turn + 1}: {candidate.title}, {count}", file=sys.stderr)
                    took = Process(process.pid)
                    result = await bench.round(["classic"] * count, log)
                    result = dataclasses.replace(
                        result, cpu=took.used(), megabytes=took.megabytes()
                    )
                    found.setdefault((candidate.title, count), []).append(result)
    print(f"\nJobs that end together, {times} rounds each\n{HEAD}")
    for count in counts:
        for candidate in candidates:
            print(line(f"{count}: {candidate.title}", found[candidate.title, count]))
    sys.stdout.flush()


async def feel(bench: rounds.Bench, ours: Candidate, each: int, together: int) -> None:
    """Let Jobs of every kind end, one by one and together, and print where the time goes."""
    async with running(ours) as (_, log):
        print("  one by one", file=sys.stderr)
        alone = await bench.round(list(rounds.KINDS) * each, log, GAP)
        many: list[rounds.Ending] = []
        for kind in rounds.KINDS:
            print(f"  {together} at once: {kind}", file=sys.stderr)
            many += (await bench.round([kind] * together, log)).endings
    for title, endings in (("One by one", alone.endings), (f"{together} at once", many)):
        print(f"\n{title}, payload exit → Job Complete; ms: min median p99 max")
        for kind in rounds.KINDS:
            chosen = [ending for ending in endings if ending.kind == kind]
            print(f"{kind:<10}{four(chosen, 'payload_exit', 'complete')}")
            for first, second in itertools.pairwise(MOMENTS[kind]):
                print(f"  {f'{first} → {second}':<34}{four(chosen, first, second)}")
    sys.stdout.flush()


async def measure(arguments: argparse.Namespace, testbed: Any, image: str) -> None:
    """Run all rounds and print them."""
    from testbed import kubernetes  # noqa: PLC0415
    from testbed.kit import workloads  # noqa: PLC0415

    kubeconfig = str(testbed.kubeconfig)
    ours = [__file__, "--reconciler", kubeconfig]
    peers = str(Path(__file__).with_name("peers.py"))
    candidates = [
        Candidate(f"ours, {number} in flight", [*ours, "--per-node", str(number)])
        for number in arguments.sweep
    ]
    if arguments.compare:
        candidates.append(Candidate("ours", ours))
        if arguments.beside:
            other = arguments.beside / Path(__file__).relative_to(ROOT)
            candidates.append(Candidate("beside", [str(other), "--reconciler", kubeconfig]))
        candidates += [Candidate(title, [peers, way, kubeconfig]) for title, way in PEERS.items()]
    async with kubernetes.Api.from_kubeconfig(testbed.kubeconfig) as api:
        await api.apply(workloads.namespace(rounds.NAMESPACE, rounds.SERVED))
        bench = rounds.Bench(api, image)
        if candidates:
            await compare(bench, candidates, arguments.counts, arguments.rounds)
        if arguments.felt:
            await feel(bench, Candidate("ours", ours), arguments.felt, arguments.counts[0])


def main() -> int:
    """Measure on a testbed."""
    parser = command_line.parser(
        "bench/bench_shutdown_node.py",
        __doc__,
        "python bench/bench_shutdown_node.py --counts 10 --rounds 1",
    )
    parser.add_argument("--name", help="of a testbed that is up, instead of an own one")
    parser.add_argument("--counts", type=_numbers, default=[30, 50], metavar="N,…")
    parser.add_argument("--rounds", type=int, default=3, metavar="TIMES")
    parser.add_argument("--sweep", type=_numbers, default=[], metavar="N,…")
    parser.add_argument("--felt", type=int, default=8, metavar="TIMES", help="0: no part 2")
    parser.add_argument("--compare", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--beside", type=Path, metavar="CHECKOUT", help="whose reconciler takes turns, too"
    )
    parser.add_argument(
        "--busy", type=int, default=0, metavar="PROGRAMS", help="that compute meanwhile"
    )
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
        with limits.many_sidecars():
            image = testbed.load_images(["app"])["app"]
            with neighbours(arguments.busy):
                asyncio.run(measure(arguments, testbed, image))
    finally:
        if not arguments.name:
            testbed.down()
    return 0


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


if __name__ == "__main__":
    sys.exit(main())
