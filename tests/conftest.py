"""What all tests share: how hypothesis looks for examples, garbage, and logging."""

import gc
from collections.abc import Iterator

import hypothesis
import pytest
import structlog

# A busy machine takes longer over an example than hypothesis allows: that is no failure.
hypothesis.settings.register_profile(
    "random", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
# Two runs of one commit try the same examples, unless `--hypothesis-profile=random` is given.
hypothesis.settings.register_profile(
    "same", hypothesis.settings.get_profile("random"), derandomize=True
)
hypothesis.settings.load_profile("same")
SHRINKING_WITHIN = 900
"""Seconds for a test with generated examples: to shrink one that fails takes up to 300."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let hypothesis show the example that fails, before the timeout of other tests."""
    for item in items:
        is_generated = hypothesis.is_hypothesis_test(getattr(item, "obj", None))
        if is_generated and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SHRINKING_WITHIN))


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
