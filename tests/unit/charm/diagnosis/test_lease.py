"""The Lease of the unit that acts."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import finished_pods

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@given(st.integers(0, 200), st.integers(1, 60))
def test_lease_is_held_until_three_of_its_lengths_are_over(age, length):
    renewed = (NOW - datetime.timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    spec = {"holderIdentity": "app/0", "renewTime": renewed, "leaseDurationSeconds": length}
    found = finished_pods.judge_lease({"spec": spec}, now=NOW, application="app")
    assert (found.level.value == "✓") == (age <= 3 * length)
    assert "app/0" in found.seen


@pytest.mark.parametrize(("found", "level"), [(None, "✗"), ({"spec": {}}, "!")])
def test_lease_that_nobody_holds(found, level):
    said = finished_pods.judge_lease(found, now=NOW, application="app")
    assert said.level.value == level
