"""The machine's limit is raised for a while, never lowered, and put back by the last."""

import pytest

from testbed import limits


@pytest.fixture
def setting(tmp_path, monkeypatch):
    """A machine's setting."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(limits, "INSTANCES", tmp_path / "max_user_instances")
    return limits.INSTANCES


@pytest.mark.parametrize(
    ("before", "during"),
    [
        pytest.param("128\n", "1024", id="too-low-is-raised"),
        pytest.param("8192\n", "8192\n", id="more-stays"),
    ],
)
def test_limit_is_raised_for_the_context_and_put_back(setting, before, during):
    setting.write_text(before)
    with limits.many_sidecars():
        assert setting.read_text() == during
    assert setting.read_text() == before


def test_limit_stays_until_the_last_of_two_runs_is_over(setting):
    setting.write_text("128\n")
    first, second = limits.many_sidecars(), limits.many_sidecars()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert setting.read_text() == "1024"
    second.__exit__(None, None, None)
    assert setting.read_text() == "128\n"
