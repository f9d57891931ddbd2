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
import http.client
import json
import pathlib
import re
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / each) for each in (".", "src", "lib", "workload")]

import lightkube  # noqa: E402
from lightkube.config.kubeconfig import KubeConfig  # noqa: E402
from process import Process  # noqa: E402
from sidecar_lifecycle.shell import settings  # noqa: E402
from sidecar_lifecycle.shell.admission import review  # noqa: E402

from istio_integrator.kube import cluster  # noqa: E402
from testbed import cluster as testbed_cluster  # noqa: E402
from testbed import command_line  # noqa: E402
from tests.api import Api  # noqa: E402
from tests.functional import admission_cases as table  # noqa: E402
from tests.functional import admission_world, loopback_istiod, loopback_webhook  # noqa: E402

SETTINGS = "hold"
ROUNDS = 10
THREADS = (1, 4, 16)
NOBODY, WEBHOOK, ISTIOD = "nobody", "webhook", "istiod"


@dataclasses.dataclass(frozen=True)
class Server:
    """The API server and the administrator's way in."""

    address: tuple[str, int]
    tls: ssl.SSLContext

    @classmethod
    def of(cls, testbed: testbed_cluster.Testbed) -> Server:
        """Read the testbed's kubeconfig."""
        found = KubeConfig.from_file(testbed.kubeconfig).get()
        host, _, port = found.cluster.server.removeprefix("https://").partition(":")
        tls = ssl.create_default_context(
            cadata=base64.b64decode(found.cluster.certificate_auth_data).decode()
        )
        with tempfile.NamedTemporaryFile() as pair:
            for data in (found.user.client_cert_data, found.user.client_key_data):
                pair.write(base64.b64decode(data))
            pair.flush()
            tls.load_cert_chain(pair.name)
        return cls((host, int(port)), tls)

    @contextlib.contextmanager
    def connection(self) -> Iterator[http.client.HTTPSConnection]:
        """Connect, for one thread."""
        connection = http.client.HTTPSConnection(*self.address, context=self.tls)
        try:
            yield connection
        finally:
            connection.close()


def _pod(namespace: str) -> dict[str, object]:
    environment = [{"name": f"VARIABLE_{n}", "value": "x" * 60} for n in range(40)]
    spec = {"containers": [table.container("main", "registry.example/app:1", env=environment)]}
    return table.Case(id="", labels={"app": "web"}, spec=spec).pod(namespace)


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _create(server: Server, namespace: str, count: int) -> list[float]:
    """Create pods one after the other; return the milliseconds that each took."""
    body = json.dumps(_pod(namespace)).encode()
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    taken: list[float] = []
    with server.connection() as connection:
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


def _create_at_once(server: Server, namespace: str, count: int, threads: int) -> list[float]:
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        parts = [
            pool.submit(_create, server, namespace, max(1, count // threads))
            for _ in range(threads)
        ]
        return [one for part in parts for one in part.result()]


def _compare(server: Server, namespaces: dict[str, str], count: int) -> None:
    print("at once  pods are changed by   p50 ms   p99 ms   added p50 (of rounds)   added p99")
    for threads in THREADS:
        rounds: dict[str, list[list[float]]] = {name: [] for name in namespaces}
        for _ in range(ROUNDS):
            for name, namespace in namespaces.items():
                part = _create_at_once(server, namespace, count // ROUNDS, threads)
                rounds[name].append(part)
        everything = {
            name: [one for part in parts for one in part] for name, parts in rounds.items()
        }
        base = _percentile(everything[NOBODY], 0.99)
        for name, values in everything.items():
            added = [
                statistics.median(mine) - statistics.median(theirs)
                for mine, theirs in zip(rounds[name], rounds[NOBODY], strict=True)
            ]
            spread = f"{statistics.median(added):+6.2f} ({min(added):+.2f} to {max(added):+.2f})"
            p99 = _percentile(values, 0.99)
            print(
                f"{threads:7}  {name:20} {statistics.median(values):8.2f} {p99:8.2f}"
                f"   {spread:24} {p99 - base:+9.2f}"
            )


def _reviews_per_second() -> float:
    values = {"application": "a", "model": "m", **table.SETTINGS[SETTINGS]}
    known = settings.admission(json.dumps(values))
    request = {
        "uid": "u",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": _pod("m"),
    }
    document = {"apiVersion": review.API_VERSION, "kind": "AdmissionReview", "request": request}
    body = json.dumps(document).encode()
    count, started = 20_000, time.process_time()
    for _ in range(count):
        review.answer(body, known, "model")
    return count / (time.process_time() - started)


def _within(webhook: loopback_webhook.Server) -> str:
    """Say below what 99 % of the answers stayed, by the webhook's own histogram."""
    name = "sidecar_lifecycle_admission_seconds"
    reviews = webhook.metric(f"{name}_count")
    _, text = webhook.get("/metrics")
    counts: dict[str, float] = {}
    for limit, count in re.findall(name + r'_bucket\{le="([^"]+)",.*\} (\S+)', text):
        counts[limit] = counts.get(limit, 0.0) + float(count)
    limit = next(limit for limit, count in counts.items() if count >= 0.99 * reviews)
    return f"99 % below {float(limit) * 1000:g} ms"


def main() -> None:
    """Print the figures."""
    parser = command_line.parser(
        "bench/bench_admission.py", __doc__, "python bench/bench_admission.py --count 200"
    )
    parser.add_argument("--count", type=int, default=1000, help="creations of each kind")
    arguments = parser.parse_args()
    testbed = testbed_cluster.Testbed("bench-admission")
    testbed.up(testbed_cluster.Options(control_plane_only=True))
    try:
        _measure(testbed, arguments.count)
    finally:
        testbed.down()


def _measure(testbed: testbed_cluster.Testbed, count: int) -> None:
    configuration = KubeConfig.from_file(testbed.kubeconfig).get()
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(lightkube.Client(config=configuration))
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        api = cluster.Cluster(client)
        served = "webhook-hold"
        _namespace(api, NOBODY)
        _namespace(api, "istiod", **admission_world.INJECTED)
        _namespace(api, served)
        world = admission_world.World(stack.enter_context(Api(configuration)), "webhook")
        known = admission_world.wanted(SETTINGS, served).document()
        webhook = stack.enter_context(loopback_webhook.serving(directory / "webhook", known))
        loopback_webhook.configure(world, SETTINGS, webhook, webhook.material.bundle)
        (directory / "istiod").mkdir()
        about = api, testbed.kubeconfig, directory / "istiod"
        stack.enter_context(loopback_istiod.installed(*about, *loopback_istiod.CLASSIC))
        world.wait_until_mutated(served)
        namespaces = {NOBODY: "nobody", WEBHOOK: served, ISTIOD: "istiod"}
        name = "sidecar_lifecycle_admission_seconds"
        before, took = webhook.metric(f"{name}_count"), Process(webhook.process.pid)
        _compare(Server.of(testbed), namespaces, count)
        spent = took.used()
        reviews = webhook.metric(f"{name}_count")
        mean = webhook.metric(f"{name}_sum") / reviews * 1000
        print(f"the webhook's server: {mean:.3f} ms on average, {_within(webhook)},")
        print(f"  {(reviews - before) / spent:.0f} reviews per second of one core with HTTPS,")
        print(f"  {_reviews_per_second():.0f} without,")
        print(f"  {took.megabytes():.0f} MB after {reviews:.0f} reviews")


def _namespace(api: cluster.Cluster, name: str, **labels: str) -> None:
    metadata = {"name": name, "labels": {key.replace("_", "-"): v for key, v in labels.items()}}
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


if __name__ == "__main__":
    main()
