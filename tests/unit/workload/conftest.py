"""What the workload's unit tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest
import structlog

from tests.unit.workload.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give the modules that ask for it a loop whose time jumps."""
    if getattr(getattr(item, "module", None), "VIRTUAL_TIME", False):
        return {"virtual": VirtualLoop}
    return {"real": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what a command under test configured: it logs to a stream that the test closes."""
    yield
    structlog.reset_defaults()
