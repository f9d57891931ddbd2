"""The webhook's server on a real API server, while settings and certificates change."""

import dataclasses
import signal
import time

import pytest

from istio_integrator.admission import certificates
from tests.functional import admission_cases as table
from tests.functional import admission_world
from tests.functional.loopback_webhook import NAME, configure, now, worlds

TIMEOUT = 10
"""Seconds for a server to take up what it was told."""


NAMES = ("hold", "neither", "revision")
"""Settings of the table: each test changes a server of its own."""


@pytest.fixture(scope="module")
def served(admin, tmp_path_factory):
    """Some settings of the table, each as a webhook of its own."""
    root = tmp_path_factory.mktemp("webhooks")
    with worlds(admin, "webhook", root, NAMES) as served:
        yield served


@pytest.fixture(scope="module")
def world(served):
    return served[0]


@pytest.fixture(scope="module")
def servers(served):
    """The running servers by the name of their settings."""
    return served[1]


@pytest.mark.parametrize("namespace", sorted(admission_world.OUT_OF_SCOPE))
def test_a_namespace_out_of_scope_is_left_alone(world, namespace):
    pod = table.Case(id="").pod(f"{world.prefix}-{namespace}")

    assert "annotations" not in world.try_pod(pod)["metadata"]


def test_a_rotation_under_load_skips_no_pod(world, servers):
    server, model = servers["hold"], world.model("hold")
    pod = table.Case(id="").pod(model)
    rotated = certificates.renew_if_due(server.material, [NAME], now(), rotate=True)
    skipped = []
    stop = time.monotonic() + 6
    changed = False
    while time.monotonic() < stop:
        if not changed and time.monotonic() > stop - 5:
            configure(world, "hold", server, rotated.bundle)
            server.show(rotated)
            changed = True
        skipped.append("annotations" not in world.try_pod(pod)["metadata"])
    configure(world, "hold", server, dataclasses.replace(rotated, previous="").bundle)
    server.material = rotated

    assert not any(skipped)
    assert len(skipped) > 50
    ok = 'sidecar_lifecycle_admission_reloads_total{file="certificate",result="ok"}'
    assert server.metric(ok) == 1
    world.wait_until_mutated(model)


def test_a_server_that_is_gone_refuses_no_pod(world, servers):
    server = servers["revision"]
    pod = table.Case(id="", labels={"team": "x"}).pod(world.model("revision"))
    assert "istio.io/rev" in world.try_pod(pod)["metadata"]["labels"]

    server.process.send_signal(signal.SIGSTOP)
    try:
        started = time.monotonic()
        created = world.try_pod(pod)
        took = time.monotonic() - started
    finally:
        server.process.send_signal(signal.SIGCONT)

    assert "istio.io/rev" not in created["metadata"]["labels"]
    assert took < 3.5
