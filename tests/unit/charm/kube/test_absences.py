"""What is remembered not to be there, and what is not believed of that."""

import json

import pytest

from istio_integrator.kube import absences

NAME = "v1/configmaps"
THEN = 1_000_000.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".absences"


def at(path, seconds=THEN):
    return absences.Absences(path, clock=lambda: seconds)


def add(path, name, seconds=THEN):
    """Have a hook see that there is nothing of a name."""
    one = at(path, seconds)
    one.add(name)
    one.save()


def test_what_is_absent_is_remembered_by_the_next_hook(path):
    add(path, NAME)
    assert NAME in at(path, THEN + 3599)
    assert "v1/services" not in at(path)


def test_many_that_are_absent_are_written_together(path):
    one = at(path)
    one.add(NAME)
    one.add("v1/services")
    assert not path.exists()
    one.save()
    assert NAME in at(path)
    assert "v1/services" in at(path)


def test_nothing_new_is_not_written(path):
    at(path).save()
    one = at(path)
    one.add(NAME)
    one.forget()
    one.save()
    assert not path.exists()


def test_what_is_made_is_written_before_anything_is_saved(path):
    add(path, NAME)
    one = at(path)
    one.add("v1/services")
    one.discard(NAME)
    assert NAME not in at(path)


def test_what_is_made_is_looked_for_by_the_next_hook(path):
    add(path, NAME)
    add(path, "v1/services")
    at(path).discard(NAME)
    assert NAME not in at(path)
    assert "v1/services" in at(path)


def test_everything_is_looked_for_again_after_an_hour_however_often_something_was_added(path):
    add(path, NAME)
    add(path, "v1/services", THEN + 3000)
    late = at(path, THEN + 3600)
    assert NAME not in late
    assert "v1/services" not in late


def test_what_was_seen_in_the_future_is_not_believed(path):
    add(path, NAME)
    assert NAME not in at(path, THEN - 1)


def test_nothing_is_known_after_forgetting(path):
    one = at(path)
    one.add(NAME)
    one.save()
    one.forget()
    assert NAME not in one
    assert NAME not in at(path)


def test_what_is_seen_after_forgetting_is_as_old_as_that(path):
    add(path, "v1/services")
    one = at(path, THEN + 3000)
    one.forget()
    one.add(NAME)
    one.save()
    assert NAME in at(path, THEN + 6000)
    assert "v1/services" not in at(path, THEN + 3000)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b"[" * 100_000, id="too deep"),
        pytest.param(b'["v1/configmaps"]', id="a list"),
        pytest.param(b'{"since": "now", "absent": ["v1/configmaps"]}', id="no time"),
        pytest.param(b'{"since": 1e6, "absent": "v1/configmaps"}', id="no names"),
        pytest.param(b'{"since": 1e6, "absent": [1]}', id="no texts"),
        pytest.param(
            json.dumps({"since": THEN, "absent": [NAME], "more": 1}).encode(), id="another version"
        ),
        pytest.param(
            json.dumps({"since": THEN, "absent": [NAME, "x" * 70_000]}).encode(), id="too long"
        ),
    ],
)
def test_file_that_is_none_of_ours_is_ignored_and_replaced(path, text):
    path.write_bytes(text)
    assert NAME not in at(path)
    add(path, "v1/services")
    assert "v1/services" in at(path)
    assert NAME not in at(path)


def test_nothing_is_left_of_a_file_that_can_not_be_replaced(path):
    add(path, NAME)
    add(path, "v1/services")
    path.with_suffix(".new").mkdir()
    at(path).discard(NAME)
    assert not path.exists()


def test_without_a_file_nothing_is_remembered():
    one = absences.Absences()
    one.add(NAME)
    one.save()
    one.discard(NAME)
    one.forget()
    assert NAME not in one
