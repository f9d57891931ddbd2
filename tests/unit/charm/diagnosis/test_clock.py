"""Clocks that differ."""

import datetime

from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import clock

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@given(st.integers(-100, 100), st.integers(-100, 100))
def test_clocks_may_differ_by_half_a_minute(own, node):
    found = list(
        clock.judge(
            local=NOW + datetime.timedelta(seconds=own),
            server=NOW,
            nodes={"n1": NOW + datetime.timedelta(seconds=node)},
        )
    )
    wrong = [abs(own) > 30, node > 30]
    assert sum(each.level.value == "✗" for each in found) == sum(wrong)


def test_clock_of_the_api_server_may_be_unknown():
    (found,) = clock.judge(local=NOW, server=None, nodes={})
    assert "is not known" in found.seen
