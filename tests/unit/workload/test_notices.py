"""However much happens, the charm is told of it in few notices: each runs a hook."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable
from unittest import mock

import pytest

from integrator_contract import charm_facts, names
from tests.unit.workload.converging import MODEL, converging, injected, without_sidecar
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.service_world import Service

GAP = 2.0
"""Seconds between two notices that the mesh changed."""


@contextlib.asynccontextmanager
async def observing(model: FakeApiserver) -> AsyncIterator[Service]:
    """Run the service until it has seen all that is there."""
    async with converging(model, leader=False) as service:
        await asyncio.sleep(5)
        assert not service.told()
        yield service


def change_mesh(model: FakeApiserver, number: object) -> None:
    labels = {"istio-injection": "enabled", "number": str(number)}
    model.namespace(MODEL, labels=labels)


async def test_many_changes_within_the_gap_are_one_notice(model: FakeApiserver):
    async with observing(model) as service:
        for number in range(50):
            change_mesh(model, number)
        await until(service.told)
        for number in range(10):
            change_mesh(model, f"later {number}")
            await asyncio.sleep(GAP / 20)
        assert service.told() == 1
        await until(lambda: service.told() > 1, seconds=GAP)
        await asyncio.sleep(2 * GAP)
        assert service.told() == 2


@pytest.mark.parametrize("pause", [1.5, 2.5, 13.0])
async def test_changes_without_end_are_few_notices_and_a_later_one_is_soon(
    model: FakeApiserver, pause: float
):
    time = asyncio.get_running_loop().time
    async with observing(model) as service:
        began = time()
        while time() - began < 300:
            change_mesh(model, time())
            await asyncio.sleep(pause)
            if time() - began < 60:
                assert service.told() <= 6
        assert 8 <= service.told() <= 10
        # The last change waits for its gap, and another one follows.
        await asyncio.sleep(2 * 60 + 16)
        for number in range(2):
            before = service.told()
            change_mesh(model, f"later {number}")
            await until(lambda before=before: service.told() > before, seconds=2 * GAP)
            await asyncio.sleep(GAP)


@pytest.mark.parametrize("finds_out", [True, False, None])
async def test_progress_that_a_hook_finds_out_meanwhile_is_no_notice(
    model: FakeApiserver, finds_out: bool | None
):
    def told() -> int:
        return service.noticed.count(names.PROGRESS_NOTICE)

    async with converging(model, leader=False) as service:
        word = (await service.get("/uninjected"))["summary"]["word"]
        progress = word if finds_out else "of before"
        if finds_out is not None:
            service.change(facts=charm_facts.CharmFacts(looked=1.0, progress=progress))
        assert not told()
        await asyncio.sleep(30)
        assert told() == (not finds_out)
        # What is news later is sent, whatever became of the first.
        model.put("pods", injected(without_sidecar()))
        await until(lambda: told() == 2 - bool(finds_out))


async def test_progress_without_end_is_a_notice_each_ten_seconds(model: FakeApiserver):
    async with converging(model, leader=False) as service:
        await asyncio.sleep(60)
        service.noticed.clear()
        for number in range(60):
            model.put("pods", without_sidecar(f"uid-{number}", f"web-{number}"))
            await asyncio.sleep(2)
        assert 8 <= service.noticed.count(names.PROGRESS_NOTICE) <= 10


async def test_notice_that_pebble_refuses_does_not_end_the_service(
    model: FakeApiserver, capsys: pytest.CaptureFixture[str]
):
    async with observing(model) as service:
        service.pebble_status = 500
        change_mesh(model, 1)
        await until(service.told)
        change_mesh(model, 2)
        await until(lambda: service.told() == 2)
    assert capsys.readouterr().err.count('"message": "notice not sent"') == 2


@pytest.mark.parametrize("variables", [{"PEBBLE_SOCKET": "/nowhere"}, {}])
async def test_service_without_a_pebble_goes_on(model: FakeApiserver, variables: dict[str, str]):
    async with observing(model) as service:
        with mock.patch.dict(os.environ):
            del os.environ["PEBBLE_SOCKET"]
            os.environ.update(variables)
            change_mesh(model, 1)
            await asyncio.sleep(2 * GAP)
        change_mesh(model, 2)
        await until(service.told)


async def test_progress_is_told_once_a_slow_list_of_pods_has_come(model: FakeApiserver):
    model.put("pods", without_sidecar())
    slow = [3]

    def answer_late(method: str, path: str) -> Awaitable[None] | None:
        return asyncio.sleep(slow.pop()) if path.endswith(f"{MODEL}/pods") and slow else None

    model.before_answer = answer_late
    async with converging(model, leader=False) as service:
        await until(lambda: not slow)
        await asyncio.sleep(20)
        assert service.noticed.count(names.PROGRESS_NOTICE)
