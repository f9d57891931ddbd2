"""What the benchmarks find on a node, with small numbers and wide bounds.

docs/explanation/performance.md has the figures.
"""

import statistics

import pytest

from bench import jobs, shutdown, training

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.cluster("tomorrow")]


@pytest.fixture
async def image(node, api):
    """The image of the benchmarks' pods; afterwards their namespaces are gone."""
    yield node.testbed.load_images(["app"])["app"]
    for namespace in (jobs.NAMESPACE, *(way.namespace for way in training.WAYS)):
        await api.delete("Namespace", namespace)


async def test_jobs_are_complete_as_soon_as_with_a_plain_port_forward(node, api, image):
    """Observed: after 0.9 times as long, at the median of 30 Jobs."""
    bench = jobs.Bench(api, image)
    found = await shutdown.compare(bench, node.testbed.kubeconfig, count=10, times=2)
    took = {
        title: statistics.median(shutdown.times_between(rounds, "payload", "complete"))
        for title, rounds in found.items()
    }
    assert took[shutdown.OURS] <= 1.5 * took[shutdown.FORWARD]


async def test_mutual_tls_between_ranks_costs_little_more_than_the_sidecar(api, image):
    """Observed: a job takes 0.9 times as long as with plain text, an all-reduce 1.2 times."""
    await training.measure(api, image, times=3, values=200_000)
    _, plain, mutual = training.WAYS
    assert training.ratio(training.JOB, mutual, plain) <= 2
    assert training.ratio(training.LATENCY, mutual, plain) <= 3
