"""The charm's facts as metrics."""

import asyncio

import pytest

from integrator_contract import charm_facts, service
from tests.unit.workload import service_world
from tests.unit.workload.fake_apiserver import FakeApiserver

FACTS = charm_facts.CharmFacts(
    looked=100.0,
    problems=(
        charm_facts.Problem(part="ingress", severity="blocked"),
        charm_facts.Problem(part="ingress", severity="blocked"),
        charm_facts.Problem(part="mesh", severity="waiting"),
    ),
    gateway_ready=True,
    guard="closed",
    certificates=(
        charm_facts.Certificate(owner="webhook", not_before=6.0, not_after=8.5),
        charm_facts.Certificate(owner="gateway", not_before=5.0, not_after=9.5),
    ),
    old_proxies=3,
)


async def served(
    cluster: FakeApiserver, known: charm_facts.CharmFacts | None
) -> dict[tuple[str, ...], float]:
    async with service_world.running(cluster, facts=known) as service:
        found = await service.metrics()
    assert found["process_resident_memory_bytes",]
    # Alerts compare with a sample of before.
    of_evictions = {key[1] for key in found if key[0] == "sidecar_lifecycle_evictions_total"}
    refusals = {"budget", "forbidden", "refused", "error"}
    assert of_evictions == {"evicted", "gone", "replaced", "unknown", *refusals}
    prefix = "istio_integrator_"
    return {
        (name.removeprefix(prefix), *labels): value
        for (name, *labels), value in found.items()
        if name.startswith(prefix)
    }


async def test_everything_that_the_charm_knows_is_shown_with_the_time_of_its_look(
    cluster: FakeApiserver,
):
    assert await served(cluster, FACTS) == {
        ("last_look_timestamp_seconds",): 100,
        ("problems", "ingress", "blocked"): 2,
        ("problems", "mesh", "waiting"): 1,
        ("gateway_ready",): 1,
        ("guard", "asks"): 0,
        ("guard", "closed"): 1,
        ("guard", "none"): 0,
        ("certificate_not_before_timestamp_seconds", "gateway"): 5,
        ("certificate_not_after_timestamp_seconds", "gateway"): 9.5,
        ("certificate_not_before_timestamp_seconds", "webhook"): 6,
        ("certificate_not_after_timestamp_seconds", "webhook"): 8.5,
        ("old_proxies",): 3,
    }


async def test_what_is_not_known_is_not_shown(cluster: FakeApiserver):
    # Only the leader knows the other facts.
    known = charm_facts.CharmFacts(looked=1.0)
    assert await served(cluster, known) == {("last_look_timestamp_seconds",): 1}
    assert await served(cluster, None) == {}


async def test_facts_that_can_not_be_read_are_told_of_and_the_last_ones_stay(
    cluster: FakeApiserver, capsys: pytest.CaptureFixture[str]
):
    async with service_world.running(cluster, facts=FACTS) as unit:
        file = service.name_results_file(unit.file)
        file.write_text("nonsense")
        await asyncio.sleep(3)
        found = await unit.metrics()
    assert found["istio_integrator_old_proxies",] == 3
    assert found["istio_integrator_last_look_timestamp_seconds",] == 100
    assert str(file) in capsys.readouterr().err
