"""What a test needs of the machine, and what becomes of it where that is not there."""

import os
from typing import NoReturn

import pytest


def leave_out(reason: str) -> NoReturn:
    """Skip aloud; in CI, where every tier must run, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
