"""Tables of cases."""

from typing import Any

import pytest


def cases(arguments: tuple[str, ...] | str, /, **rows: Any) -> pytest.MarkDecorator:
    """Run a test for each row, which has a name and a value for each argument of the test."""
    is_single = isinstance(arguments, str)
    values = [pytest.param(*([row] if is_single else row), id=name) for name, row in rows.items()]
    return pytest.mark.parametrize(arguments, values)
