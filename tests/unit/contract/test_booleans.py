"""Boolean settings as Istio reads them."""

import pytest

from integrator_contract import booleans
from tests.unit.cases import cases


@pytest.mark.parametrize("default", [True, False])
@cases(
    ("texts", "value"),
    true=(("1", "t", "T", "TRUE", "true", "True"), True),
    false=(("0", "f", "F", "FALSE", "false", "False"), False),
    neither=((None, "", " true", "false ", "yes", "no", "on", "tRUE", "2"), None),
)
def test_text_is_read_as_go_reads_it(texts, value, default):
    expected = default if value is None else value
    assert {text: booleans.parse(text, default=default) for text in texts} == dict.fromkeys(
        texts, expected
    )
