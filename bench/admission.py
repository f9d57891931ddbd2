"""What admission adds to the creation of a pod, beside what istiod's injector adds.

Dry-run creations on a real API server, in turns in one run: in a namespace that nobody serves, in
one served by the webhook's process on loopback, and in one that only a real istiod injects into.
Every client thread keeps one connection and sends the same bytes, so its own time is in every
figure alike; what counts is the difference to the first row.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import dataclasses
import functools
import http.client
import json
import pathlib
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import lightkube
from lightkube.config.kubeconfig import KubeConfig

from bench import world
from bench.process import Process
from istio_integrator.kube import cluster
from testbed import cluster as testbed_cluster
from testbed import command_line
from tests.api import Api
from tests.functional import admission_cases as table
from tests.functional import admission_world, loopback_istiod, loopback_webhook
from tests.kubernetes_objects import namespace_of

SETTINGS = "hold"
ROUNDS = 10
THREADS = (1, 4, 16)
NOBODY, WEBHOOK, ISTIOD = "nobody", "webhook", "istiod"


Connect = Callable[[], http.client.HTTPSConnection]


def connector(testbed: testbed_cluster.Testbed) -> Connect:
    """Return what connects to the API server as its administrator."""
    found: Any = KubeConfig.from_file(testbed.kubeconfig).get()
    host, _, port = found.cluster.server.removeprefix("https://").partition(":")
    authority = base64.b64decode(found.cluster.certificate_auth_data).decode()
    tls = ssl.create_default_context(cadata=authority)
    with tempfile.NamedTemporaryFile() as pair:
        for data in (found.user.client_cert_data, found.user.client_key_data):
            pair.write(base64.b64decode(data))
        pair.flush()
        tls.load_cert_chain(pair.name)
    return functools.partial(http.client.HTTPSConnection, host, int(port), context=tls)


def _pod(namespace: str) -> dict[str, object]:
    environment = [{"name": f"VARIABLE_{n}", "value": "x" * 60} for n in range(40)]
    spec = {"containers": [table.container("main", "registry.example/app:1", env=environment)]}
    return table.Case(id="", labels={"app": "web"}, spec=spec).pod(namespace)


def _create(connect: Connect, namespace: str, count: int) -> list[float]:
    """Create pods one after the other; return the milliseconds that each took."""
    body = json.dumps(_pod(namespace)).encode()
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    taken: list[float] = []
    with contextlib.closing(connect()) as connection:
        for number in range(count + 1):
            started = time.perf_counter()
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            if response.status != 201:
                raise RuntimeError(answer.decode())
            if number:  # The first one connects.
                taken.append((time.perf_counter() - started) * 1000)
    return taken


def _create_at_once(connect: Connect, namespace: str, count: int, threads: int) -> list[float]:
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        parts = [
            pool.submit(_create, connect, namespace, max(1, count // threads))
            for _ in range(threads)
        ]
        return [one for part in parts for one in part.result()]


@dataclasses.dataclass(frozen=True)
class Added:
    """What pods of one kind took, and what that is more than where nothing changes them."""

    threads: int
    changed_by: str
    median: float
    """Milliseconds, as all others."""
    p99: float
    added: list[float]
    """To the median, of each round."""
    added_p99: float


def compare(connect: Connect, namespaces: dict[str, str], count: int) -> Iterator[Added]:
    """Create pods in all namespaces in turns, by one client and by several."""
    for threads in THREADS:
        rounds: dict[str, list[list[float]]] = {name: [] for name in namespaces}
        for _ in range(ROUNDS):
            for name, namespace in namespaces.items():
                part = _create_at_once(connect, namespace, count // ROUNDS, threads)
                rounds[name].append(part)
        whole = {name: [one for part in parts for one in part] for name, parts in rounds.items()}
        for name, values in whole.items():
            added = [
                statistics.median(mine) - statistics.median(theirs)
                for mine, theirs in zip(rounds[name], rounds[NOBODY], strict=True)
            ]
            p99 = statistics.quantiles(values, n=100)[98]
            more = p99 - statistics.quantiles(whole[NOBODY], n=100)[98]
            yield Added(threads, name, statistics.median(values), p99, added, more)


@contextlib.contextmanager
def served(
    testbed: testbed_cluster.Testbed,
) -> Iterator[tuple[loopback_webhook.Server, dict[str, str]]]:
    """Serve the webhook and istiod; yield the webhook, and the namespaces by what changes pods."""
    configuration: Any = KubeConfig.from_file(testbed.kubeconfig).get()
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(lightkube.Client(config=configuration))
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        api: Any = cluster.Cluster(client)
        namespaces = {NOBODY: "nobody", WEBHOOK: "webhook-hold", ISTIOD: "istiod"}
        for name in namespaces.values():
            api.create(namespace_of(name, **(admission_world.INJECTED if name == ISTIOD else {})))
        place = admission_world.World(stack.enter_context(Api(configuration)), "webhook")
        known = admission_world.wanted(SETTINGS, namespaces[WEBHOOK]).to_document()
        webhook = stack.enter_context(loopback_webhook.serving(directory / "webhook", known))
        loopback_webhook.configure(place, SETTINGS, webhook, webhook.material.bundle)
        (directory / "istiod").mkdir()
        about = api, testbed.kubeconfig, directory / "istiod"
        stack.enter_context(loopback_istiod.installed(*about, *loopback_istiod.CLASSIC))
        place.wait_until_mutated(namespaces[WEBHOOK])
        yield webhook, namespaces


def main() -> None:
    """Print the figures."""
    parser = command_line.parser(
        "bench.admission", __doc__, "python -m bench.admission --count 200"
    )
    parser.add_argument("--count", type=int, default=1000, help="creations of each kind")
    count = parser.parse_args().count
    with world.control_plane("bench-admission") as testbed, served(testbed) as (webhook, names):
        took = Process(webhook.process.pid)
        print("at once  pods are changed by   p50 ms   p99 ms   added p50 (of rounds)   added p99")
        for row in compare(connector(testbed), names, count):
            spread = f"({min(row.added):+.2f} to {max(row.added):+.2f})"
            print(
                f"{row.threads:7}  {row.changed_by:20} {row.median:8.2f} {row.p99:8.2f}"
                f"   {statistics.median(row.added):+6.2f} {spread:17} {row.added_p99:+9.2f}"
            )
        reviews = webhook.metric("sidecar_lifecycle_admission_seconds_count")
        print(f"the webhook: {took.used() / reviews * 1000:.2f} ms CPU each, {took.held():.0f} MB")


if __name__ == "__main__":
    main()
