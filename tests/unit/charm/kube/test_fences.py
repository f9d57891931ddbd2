"""What is raised about one object is noted, and no other is passed over for it."""

import pytest

from istio_integrator.kube import fences


@pytest.fixture(autouse=True)
def forgotten():
    fences.forget()
    yield
    fences.forget()


@pytest.mark.parametrize("error", [KeyError("a"), TypeError("b"), RecursionError("c")])
def test_trouble_about_an_object_is_noted_once_and_work_goes_on(error, caplog):
    for _ in "ab":
        with fences.around("Pod a/b"):
            raise error
    fences.note("Pod a/b", "other")
    reason = f"{type(error).__name__}: {error}"
    assert fences.noted() == {"Pod a/b": reason}
    assert [each.getMessage() for each in caplog.records] == [f"Pod a/b is passed over: {reason}."]
    fences.forget()
    assert fences.noted() == {}


def test_what_is_no_trouble_about_an_object_is_raised():
    with pytest.raises(OSError, match="disk"), fences.around("Pod a/b"):
        raise OSError("disk")
    assert fences.noted() == {}


def test_log_names_some_objects_and_says_that_there_are_more(caplog):
    named = [f"Pod a/{number}" for number in range(fences.MOST_NOTED + 1)]
    for reference in named:
        fences.note(reference, "why")

    *each, last = (record.getMessage() for record in caplog.records)
    assert each == [f"{name} is passed over: why." for name in named[: fences.MOST_LOGGED]]
    assert last.startswith("More objects are passed over")
    assert [*fences.noted()] == named[:-1]
