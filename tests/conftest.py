"""What all tests share: how hypothesis looks for examples, garbage, and logging."""

import gc
from collections.abc import Iterator

import hypothesis
import pytest
import structlog

# A busy machine takes longer over an example than hypothesis allows: that is no failure.
hypothesis.settings.register_profile(
    "tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")


def pytest_collection_finish() -> None:
    """Look for garbage more rarely, and not among the modules and tests, which stay.

    That takes a sixth of the CPU time of the unit tests otherwise, in pauses of a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what a command under test configured: it logs to a stream that the test closes."""
    yield
    structlog.reset_defaults()
