"""Pods without a sidecar, with an old one, and proxies that outlive their payload."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lifecycle
from diagnosis import sidecars

NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
SUMMARY = {
    "eligible": 3,
    "in_mesh": 3,
    "converging": 0,
    "proposed": 0,
    "guarded": (),
    "reported": 0,
    "settled_before_us": False,
}
BARE = {"namespace": "a", "name": "bare", "message": "nothing would create it again"}

LIST = "juju run app/leader list-uninjected"


def judged(*pods, **summary):
    answer = lifecycle.Answer(list(pods), lifecycle.Summary(**{**SUMMARY, **summary}))
    return list(sidecars.uninjected(answer, application="app"))


def test_model_that_is_whole_is_one_line():
    (found,) = judged()
    assert (found.level.value, found.seen) == ("✓", "3/3 pods in mesh")


def test_pods_are_named_with_what_keeps_the_sidecar_from_them():
    found = judged(BARE, {**BARE, "name": "b"}, {**BARE, "name": "c", "message": "it is a Job"})
    assert [each.seen for each in found] == [
        "no sidecar: a/bare, a/b: nothing would create it again",
        "no sidecar: a/c: it is a Job",
    ]


@pytest.mark.parametrize(
    ("summary", "level", "command"),
    [
        pytest.param(
            {"in_mesh": 1, "proposed": 2}, "✗", "juju run app/leader restart-uninjected", id="ask"
        ),
        pytest.param({"in_mesh": 2, "converging": 1}, "!", LIST, id="converging"),
        pytest.param({"in_mesh": 2, "guarded": ("minio: again none",)}, "✗", LIST, id="guarded"),
    ],
)
def test_what_the_status_says_is_said(summary, level, command):
    found = judged(**summary)[0]
    assert (found.level.value, found.next) == (level, command)


def test_old_proxies_are_named_by_what_is_old():
    rows = [{"namespace": "a", "name": "x", "message": "revision 1-30"}]
    (found,) = sidecars.stale(rows, application="app")
    assert (found.level.value, found.seen) == ("!", "old proxy: a/x: revision 1-30")
    (found,) = sidecars.stale([], application="app")
    assert found.level.value == "✓"


def stamp(seconds):
    return (NOW - datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def ended(seconds):
    return {"terminated": {"exitCode": 0, "finishedAt": stamp(seconds)}}


def pod(**states):
    names = {key.replace("_", "-"): value for key, value in states.items()}
    return {
        "metadata": {"name": "job", "namespace": "a"},
        "status": {
            "containerStatuses": [{"name": name, "state": state} for name, state in names.items()]
        },
    }


RUNNING = {"running": {}}


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=4))
def test_payload_ends_with_its_last_container(ages):
    states = {f"c{number}": ended(age) for number, age in enumerate(ages)}
    found = sidecars.payload_end(pod(istio_proxy=RUNNING, **states))
    assert found == NOW - datetime.timedelta(seconds=min(ages))


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(pod(istio_proxy=ended(5), main=ended(9)), id="proxy-has-ended"),
        pytest.param(pod(istio_proxy=RUNNING, main=RUNNING), id="payload-runs"),
        pytest.param(pod(istio_proxy=RUNNING, main={"waiting": {}}), id="payload-waits"),
        pytest.param(pod(istio_proxy=RUNNING), id="no-payload"),
        pytest.param(pod(main=ended(9)), id="no-proxy"),
    ],
)
def test_payload_that_has_not_ended_beside_a_proxy_is_none(given):
    assert sidecars.payload_end(given) is None


@pytest.mark.parametrize(
    ("age", "decision", "is_stopping", "want"),
    [
        pytest.param(29, "stop", True, ["✓"], id="just-now"),
        pytest.param(31, "stop", True, ["✗"], id="should-be-stopped"),
        pytest.param(31, "stop", False, ["✗"], id="switched-off"),
        pytest.param(31, "ignore", True, ["!"], id="told-not-to"),
        pytest.param(31, "report", True, ["!"], id="can-not"),
    ],
)
def test_proxy_after_its_payload_is_judged_by_the_rules(age, decision, is_stopping, want):
    line = {"namespace": "a", "name": "job", "decision": decision, "message": "all done"}
    found = list(
        sidecars.lingering(
            [pod(istio_proxy=RUNNING, main=ended(age))],
            [line],
            now=NOW,
            application="app",
            is_stopping=is_stopping,
        )
    )
    assert [each.level.value for each in found] == want
    if want != ["✓"]:
        assert f"{age} s after its payload: all done ({decision})" in found[0].seen
    assert ("proxy-shutdown=true" in found[0].next) == (want == ["✗"] and not is_stopping)
    stop = "juju run app/leader stop-proxy pod=job namespace=a"
    assert (found[0].next == stop) == (want == ["✗"] and is_stopping)


COLLECTOR = "metrics_logger_and_collector"


def trial(arguments, *, native=False, **states):
    found = pod(**states)
    found["spec"] = {
        "containers": [{"name": COLLECTOR.replace("_", "-"), "args": arguments}, {"name": "main"}]
    }
    if native:
        found["status"]["initContainerStatuses"] = [{"name": "istio-proxy", "state": RUNNING}]
    return found


BOTH = {"istio_proxy": RUNNING, COLLECTOR: RUNNING}


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        pytest.param(trial(["-w", "true"], **BOTH, main=ended(31)), True, id="asked-to"),
        pytest.param(trial([], **BOTH, main=ended(31)), True, id="by-default"),
        pytest.param(
            trial([], native=True, **{COLLECTOR: RUNNING}, main=ended(31)), True, id="native"
        ),
        pytest.param(trial(["-w", "false"], **BOTH, main=ended(31)), False, id="told-not-to"),
        pytest.param(trial([], **BOTH, main=ended(29)), False, id="just-now"),
        pytest.param(trial([], **BOTH, main=RUNNING), False, id="training"),
        pytest.param(trial([], **{COLLECTOR: RUNNING}, main=ended(31)), False, id="no-proxy"),
        pytest.param(
            trial([], istio_proxy=RUNNING, **{COLLECTOR: ended(9)}, main=ended(31)),
            False,
            id="reported",
        ),
        pytest.param(trial([], **BOTH), False, id="not-begun"),
        pytest.param(
            {**pod(istio_proxy=RUNNING, main=ended(31)), "spec": {}}, False, id="no-collector"
        ),
    ],
)
def test_collector_and_proxy_that_wait_for_each_other_are_named(given, waits):
    found = list(sidecars.collected([given], now=NOW))
    assert [each.level.value for each in found] == (["✗"] if waits else [])
    if waits:
        assert "31 s after the training" in found[0].seen
        assert "katib-config" in found[0].next
