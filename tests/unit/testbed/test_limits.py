"""The machine's limit is raised for a while, never lowered, and put back."""

import pytest

from testbed import limits


@pytest.mark.parametrize(
    ("before", "during"),
    [
        pytest.param("128\n", "1024", id="too-low-is-raised"),
        pytest.param("8192\n", "8192\n", id="more-stays"),
    ],
)
def test_limit_is_raised_for_the_context_and_put_back(tmp_path, monkeypatch, before, during):
    setting = tmp_path / "max_user_instances"
    setting.write_text(before)
    monkeypatch.setattr(limits, "INSTANCES", setting)
    with limits.many_sidecars():
        assert setting.read_text() == during
    assert setting.read_text() == before
