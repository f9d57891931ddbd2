import pytest

from testbed.juju import client


def test_crashed_action_fails_without_error_status_and_drops_its_writes(settled):
    with pytest.raises(client.ActionFailedError) as failure:
        settled.juju.run("tiny/0", "crash")
    assert failure.value.outcome["results"]["return-code"] == 1
    assert "RuntimeError in charm code: crash" in failure.value.outcome["results"]["stderr"]
    assert (
        settled.juju.status()["applications"]["tiny"]["application-status"]["current"] != "error"
    )
    bag = settled.juju.show_unit("tiny/0")["relation-info"][0]["local-unit"]["data"]
    assert "crashed" not in bag


def test_action_fail_marks_the_action_failed_with_its_message(settled):
    with pytest.raises(client.ActionFailedError, match="no thanks"):
        settled.juju.run("tiny/0", "refuse")


@pytest.mark.parametrize(
    ("action", "params", "message"),
    [
        pytest.param("none", {}, "not defined", id="unknown action"),
        pytest.param("echo", {"word": "a", "x": 1}, "unknown parameter x", id="unknown parameter"),
        pytest.param("echo", {}, "word is required", id="missing parameter"),
    ],
)
def test_bad_action_call_is_refused(settled, action, params, message):
    with pytest.raises(client.JujuError, match=message):
        settled.juju.run("tiny/0", action, params)
