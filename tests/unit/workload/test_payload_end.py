"""When the work of a pod ended before its proxy."""

from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.decide import payload

from tests.unit.cases import cases
from tests.unit.workload.pods import ended, pod, running, waiting

IGNORING = {"istio-integrator.charmhub.io/ignore-containers": "agent"}


def stamp(seconds):
    return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


@given(st.lists(st.integers(0, 80_000), min_size=1, max_size=4))
def test_payload_ends_with_its_last_container(moments):
    first, *rest = (ended(finished=stamp(moment)) for moment in moments)
    others = {f"c{number}": state for number, state in enumerate(rest)}
    assert payload.ended_at(pod(first, others=others)) == stamp(max(moments))


@cases(
    "one",
    proxy_has_ended=pod(proxy=ended()),
    payload_runs=pod(running()),
    payload_waits=pod(waiting()),
    payload_is_started_again=pod(ended(1), policy="OnFailure"),
    one_of_two_runs=pod(others={"agent": running()}),
)
def test_payload_that_has_not_ended_beside_a_proxy_has_no_end(one):
    assert payload.ended_at(one) == ""


def test_container_that_is_ignored_does_not_keep_a_payload_from_its_end():
    agent = {"agent": running()}
    assert payload.ended_at(pod(others=agent, annotations=IGNORING)) == "2026-01-01T00:01:00Z"
    assert payload.ended_at(pod(others=agent), ignore=("agent",)) == "2026-01-01T00:01:00Z"


def test_payload_ends_beside_a_proxy_that_never_started():
    assert payload.ended_at(pod(proxy=waiting())) == "2026-01-01T00:01:00Z"


def test_end_is_described_by_each_containers_exit_code():
    main = tuple(each for each in pod().spec.containers if each.name == "main")
    assert payload.describe(pod(ended(3)), main) == "main ended with 3"
    assert payload.describe(pod(running()), main) == "main ended with ?"


def test_of_containers_that_are_all_ignored_each_must_have_ended():
    assert payload.ended_at(pod(), ignore=("main",)) == "2026-01-01T00:01:00Z"
    assert payload.ended_at(pod(running()), ignore=("main",)) == ""
