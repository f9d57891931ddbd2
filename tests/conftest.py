"""What all tests share: how hypothesis looks for examples, and logging."""

from collections.abc import Iterator

import hypothesis
import pytest
import structlog

# A busy machine takes longer over an example than hypothesis allows: that is no failure.
hypothesis.settings.register_profile(
    "tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what a command under test configured: it logs to a stream that the test closes."""
    yield
    structlog.reset_defaults()
