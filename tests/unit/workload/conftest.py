"""What the workload's unit tests share."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from tests.unit.workload import converging
from tests.unit.workload.fake_apiserver import FakeApiserver
from tests.unit.workload.service_world import MODEL
from tests.unit.workload.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give each test a loop whose time jumps."""
    return {"virtual": VirtualLoop}


@pytest.fixture
async def cluster() -> AsyncIterator[FakeApiserver]:
    """An API server that has the model's namespace."""
    fake = FakeApiserver()
    async with fake:
        fake.namespace(MODEL)
        yield fake


@pytest.fixture
def model(cluster: FakeApiserver) -> FakeApiserver:
    """An API server with an application whose pod lacks its sidecar, and this charm's own."""
    converging.fill(cluster)
    return cluster
