"""Pods of one namespace that hang delay nobody else's; time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.shutdown_world import NAMESPACE, reconciler

VIRTUAL_TIME = True
TENANT = "tenant"
HANGING = 400


@pytest.fixture
async def cluster() -> AsyncIterator[FakeApiserver]:
    fake = FakeApiserver()
    async with fake:
        fake.namespace(NAMESPACE)
        fake.namespace(TENANT, labels={"app.kubernetes.io/part-of": "kubeflow-profile"})
        for number in range(HANGING):
            name = f"hangs-{number}"
            fake.proxies[name].mode = fake.proxies[name].exec_mode = "hang"
            fake.put("pods", pods.pod_json(name=name, uid=name, namespace=TENANT))
        yield fake


async def test_first_try_of_a_neighbour_of_hundreds_of_hanging_proxies_is_soon(
    cluster: FakeApiserver,
):
    loop = asyncio.get_running_loop()
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == HANGING)
        asked = loop.time()
        cluster.put("pods", pods.pod_json())
        await until(lambda: cluster.proxies["job-x"].requests)
        assert loop.time() - asked < 2


async def test_second_try_of_a_neighbour_of_hundreds_of_hanging_proxies_is_soon(
    cluster: FakeApiserver,
):
    loop = asyncio.get_running_loop()
    async with reconciler(cluster) as controller:
        await until(lambda: len(controller.view) == HANGING)
        # Those that hang have had their first tries, and wait for the second.
        await asyncio.sleep(150)
        asked = loop.time()
        cluster.proxies["job-x"].mode = "500"
        cluster.put("pods", pods.pod_json())
        await until(lambda: len(cluster.proxies["job-x"].requests) == 1)
        cluster.proxies["job-x"].mode = "ok"
        await until(lambda: len(cluster.proxies["job-x"].requests) == 2)
        assert loop.time() - asked < 10
