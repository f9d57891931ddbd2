"""Tables of cases."""

from collections.abc import Mapping
from typing import Any

import pytest


class row(dict[str, Any]):  # noqa: N801 - as a table reads
    """A row by the names of arguments; those that it leaves out have the table's defaults."""


def cases(
    arguments: tuple[str, ...] | str, defaults: Mapping[str, Any] | None = None, /, **rows: Any
) -> pytest.MarkDecorator:
    """Run a test for each row, which has a name and a value for each argument of the test."""

    def values(given: Any) -> Any:
        if isinstance(given, row):
            assert given.keys() <= {*arguments}, given.keys() - {*arguments}
            return [{**(defaults or {}), **given}[name] for name in arguments]
        return [given] if isinstance(arguments, str) else given

    params = [pytest.param(*values(given), id=name) for name, given in rows.items()]
    return pytest.mark.parametrize(arguments, params)
