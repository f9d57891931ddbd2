"""How fast the pods of a training job exchange data: without a mesh, and in it in two ways.

Starts a testbed, as root. In each round every way has its turn: two ranks
(`testbed/payload/ranks.py`) measure an all-reduce, then a job of three ranks does a fixed number
of steps. The ways:

- no mesh: pods without a sidecar
- passthrough: pods with a sidecar where plain text is allowed, as without this charm
- mutual TLS: this charm's EnvoyFilter, where plain text is denied
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench import jobs
from integrator_contract import names
from istio_integrator.kube import manifests
from testbed import cluster, command_line, kubernetes
from testbed.kit import training, workloads

PORT = 23456
STEPS = 40
"""All-reduces of a measurement, and of the job of three ranks."""
STARTED = 120.0
"""Seconds for the pods of a job to start and end."""
SERVED = {"istio-injection": "enabled"}
FILTER = "istio-integrator.bench.training"
LABELS = {names.POD_TRAFFIC: names.MUTUAL_TLS}


@dataclasses.dataclass
class Way:
    """A namespace in which ranks reach each other in one way."""

    title: str
    namespace: str
    labels: dict[str, str]
    """Of the namespace."""
    pod_labels: dict[str, str] = dataclasses.field(default_factory=dict)
    found: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    """The figures of all rounds, by what was measured."""

    def note(self, measure: str, value: float) -> None:
        """Keep a figure."""
        self.found.setdefault(measure, []).append(value)


WAYS = (
    Way("no mesh", "bench-bare", {}),
    Way("passthrough", "bench-plain", SERVED),
    Way("mutual TLS", "bench-mutual", SERVED, LABELS),
)
LATENCY, BANDWIDTH, JOB = "all-reduce of 8 bytes, us", "all-reduce, Gbit/s", "job of 3 pods, s"


def ranks(way: Way, name: str, count: int, image: str, *options: object) -> Iterator[Any]:
    """Yield the Service of rank 0 and the pods of a job."""
    port = {"name": "tcp-master", "port": PORT}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "ports": [port]}
    yield workloads.manifest(
        "v1", "Service", name, way.namespace, **spec, selector={"job": name, "rank": "0"}
    )
    for rank in range(count):
        values = {"MASTER_ADDR": name, "MASTER_PORT": PORT, "RANK": rank, "WORLD_SIZE": count}
        environment = [{"name": key, "value": str(value)} for key, value in values.items()]
        command = workloads.payload("ranks.py", *options)
        body = workloads.template(
            [workloads.container("main", image, command, env=environment)],
            restart_policy="Never",
            labels={"job": name, "rank": str(rank), **way.pod_labels},
            annotations=jobs.NATIVE,
        )
        yield workloads.pod(f"{name}-{rank}", way.namespace, body)


async def run(api: kubernetes.Api, way: Way, name: str, objects: list[Any]) -> tuple[float, str]:
    """Run a job; return the seconds until all its pods have succeeded, and the log of rank 0."""
    began = time.monotonic()
    await asyncio.gather(*(api.create(each) for each in objects))
    async with asyncio.timeout(STARTED):
        while True:
            pods = await api.list("Pod", way.namespace, f"job={name}")
            phases = [each["status"].get("phase") for each in pods]
            if "Failed" in phases:
                raise RuntimeError(await api.log(way.namespace, f"{name}-0", "main"))
            if phases.count("Succeeded") == len(objects) - 1:
                break
            await asyncio.sleep(0.1)
    took = time.monotonic() - began
    log = await api.log(way.namespace, f"{name}-0", "main")
    for each in objects:
        await api.delete(each["kind"], each["metadata"]["name"], way.namespace)
    return took, log


async def prepare(api: kubernetes.Api) -> None:
    """Create the namespaces, one of them with strict mutual TLS and the charm's EnvoyFilter."""
    for way in WAYS:
        await api.apply(workloads.namespace(way.namespace, way.labels))
    strict = WAYS[-1].namespace
    await api.apply(workloads.strict(strict))
    addresses = [each["status"].get("podIP") for each in await api.list("Pod", "istio-system")]
    network = training.network_of(next(filter(None, addresses)))
    variables = {
        "name": FILTER,
        "selector": LABELS,
        "trust_domains": ["cluster.local"],
        "filters": {strict: [network]},
    }
    await api.apply(*manifests.render("training", variables))


async def measure(api: kubernetes.Api, image: str, times: int, values: int) -> None:
    """Run all rounds."""
    await prepare(api)
    for number in range(times + 1):
        turn = number % len(WAYS)
        for way in WAYS[turn:] + WAYS[:turn]:
            name = f"two-{number}"
            options = ("--measure", "--steps", STEPS, "--values", values)
            _, log = await run(api, way, name, [*ranks(way, name, 2, image, *options)])
            found = re.search(r"(\d+) us, (\S+) Gbit/s", log)
            assert found, log
            name = f"three-{number}"
            took, _ = await run(api, way, name, [*ranks(way, name, 3, image, "--steps", STEPS)])
            # The first round warms up: images are unpacked, and istiod learns of the namespaces.
            if number:
                way.note(LATENCY, float(found[1]))
                way.note(BANDWIDTH, float(found[2]))
                way.note(JOB, took)
                print(f"  round {number}: {way.title} {found[0]}, {took:.1f} s", file=sys.stderr)


def ratio(name: str, one: Way, other: Way) -> float:
    """Return the median of the ratios of two ways in the same round."""
    return statistics.median(map(float.__truediv__, one.found[name], other.found[name]))


def report() -> None:
    """Print the ways side by side: median, least and most of all rounds, and two ratios."""
    bare, plain, mutual = WAYS
    titles = [*(way.title for way in WAYS), "to passthrough", "to no mesh"]
    print(f"{'median (least-most)':<28}" + "".join(f"{title:>24}" for title in titles))
    for name in (LATENCY, BANDWIDTH, JOB):
        figures = [sorted(way.found[name]) for way in WAYS]
        cells = [
            f"{statistics.median(all_):.2f} ({all_[0]:.2f}-{all_[-1]:.2f})" for all_ in figures
        ]
        cells += [f"{ratio(name, mutual, other):.2f}" for other in (plain, bare)]
        print(f"{name:<28}" + "".join(f"{each:>24}" for each in cells))


def main() -> int:
    """Measure on a testbed."""
    parser = command_line.parser("bench.training", __doc__, "python -m bench.training --rounds 3")
    parser.add_argument("--rounds", type=int, default=10, metavar="TIMES")
    parser.add_argument("--values", type=int, default=2_000_000, help="of 8 bytes, to reduce")
    given = parser.parse_args()

    async def connected(api: kubernetes.Api, image: str) -> None:
        await measure(api, image, given.rounds, given.values)
        report()

    return jobs.on_a_node("bench.training", cluster.Options(), connected)


if __name__ == "__main__":
    sys.exit(main())
