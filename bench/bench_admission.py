"""What admission adds to the creation of a pod, and how many reviews a core answers.

Dry-run creations on a real API server, in turns in one run: in a namespace that nobody serves,
in one served by the policy, and in one served by the webhook's process on loopback. The client is
Python's, in threads of one process, so its own time is in every figure alike; what counts is the
difference to the first row.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "workload")]

import lightkube  # noqa: E402
from lightkube.config.kubeconfig import KubeConfig  # noqa: E402
from sidecar_lifecycle.admission import review, settings  # noqa: E402

import cluster  # noqa: E402
import manifests  # noqa: E402
import policy  # noqa: E402
from testbed import cluster as testbed_cluster  # noqa: E402
from tests.functional import admission_cases as table  # noqa: E402
from tests.functional import admission_world, loopback_webhook  # noqa: E402

SETTINGS = "hold"
ROUNDS = 10


def _pod(namespace: str) -> dict[str, object]:
    environment = [{"name": f"VARIABLE_{n}", "value": "x" * 60} for n in range(40)]
    spec = {"containers": [table.container("main", "registry.example/app:1", env=environment)]}
    return table.Case(id="", labels={"app": "web"}, spec=spec).pod(namespace)


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _create(api: cluster.Cluster, namespace: str, count: int, threads: int) -> list[float]:
    pod = _pod(namespace)

    def once(_: int) -> float:
        started = time.perf_counter()
        api.create(pod, dry_run=True)
        return (time.perf_counter() - started) * 1000

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(once, range(count)))


def _compare(api: cluster.Cluster, namespaces: dict[str, str], count: int) -> None:
    for threads in (1, 4, 16):
        taken: dict[str, list[float]] = {name: [] for name in namespaces}
        for _ in range(ROUNDS):
            for name, namespace in namespaces.items():
                taken[name] += _create(api, namespace, count // ROUNDS, threads)
        base = taken["nobody"]
        for name, values in taken.items():
            p50, p99 = statistics.median(values), _percentile(values, 0.99)
            added = p50 - statistics.median(base), p99 - _percentile(base, 0.99)
            print(
                f"{threads:3} at once  {name:8} p50 {p50:6.2f} ms  p99 {p99:6.2f} ms"
                f"   added {added[0]:+6.2f} {added[1]:+6.2f}"
            )


def _reviews_per_second() -> float:
    values = {"application": "a", "model": "m", **table.SETTINGS[SETTINGS]}
    known = settings.load(json.dumps(values))
    body = json.dumps(
        {
            "apiVersion": review.API_VERSION,
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "operation": "CREATE",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "object": _pod("m"),
            },
        }
    ).encode()
    count, started = 20_000, time.process_time()
    for _ in range(count):
        review.answer(body, known, "model")
    return count / (time.process_time() - started)


def _memory(process: int) -> float:
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
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
    with (
        lightkube.Client(config=configuration) as client,
        tempfile.TemporaryDirectory() as directory,
    ):
        api = cluster.Cluster(client)
        by_policy = admission_world.World(api, "policy")
        by_webhook = admission_world.World(api, "webhook")
        by_policy.create_namespaces()
        by_webhook.create_namespaces()
        model = by_policy.model(SETTINGS)
        owner = manifests.Manifests(api, model=model, application=table.APPLICATION)
        context = policy.context(
            admission_world.wanted(SETTINGS, model),
            policy.namespace_selectors(model, ()),
            owner=owner.owner,
        )
        owner.apply(policy.FOLDER, context)
        served = by_webhook.model(SETTINGS)
        known = admission_world.wanted(SETTINGS, served).settings()
        path = pathlib.Path(directory) / "webhook"
        with loopback_webhook.serving(path, known) as server:
            loopback_webhook.configure(by_webhook, SETTINGS, server, server.material.bundle)
            by_policy.wait_until_mutated(model)
            by_webhook.wait_until_mutated(served)
            namespaces = {"nobody": "policy-plain", "policy": model, "webhook": served}
            _compare(api, namespaces, count)
            seconds = server.metric("sidecar_lifecycle_admission_seconds_sum")
            reviews = server.metric("sidecar_lifecycle_admission_seconds_count")
            print(f"webhook: {seconds / reviews * 1000:.3f} ms at the server on average,")
            print(f"  {_memory(server.process.pid):.0f} MB after {reviews:.0f} reviews")
    print(f"  {_reviews_per_second():.0f} reviews per second of one core, without HTTP")


if __name__ == "__main__":
    main()
