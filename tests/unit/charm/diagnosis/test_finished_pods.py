"""Proxies that outlive their payload."""

import dataclasses
import datetime

import pytest

from istio_integrator.diagnosis.checks import finished_pods
from istio_integrator.messages import Said, Severity
from tests import asked

NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


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


STOP = "juju run app/leader stop-proxy pod=job namespace=a"
LOOK = "kubectl -n a describe pod job"


@pytest.mark.parametrize(
    ("age", "decision", "is_stopping", "severity", "command"),
    [
        pytest.param(29, "stop", True, None, "", id="just-now"),
        pytest.param(31, "stop", True, Severity.BLOCKED, STOP, id="should-be-stopped"),
        pytest.param(
            31,
            "stop",
            False,
            Severity.BLOCKED,
            "juju config app proxy-shutdown=true",
            id="switched-off",
        ),
        pytest.param(31, "ignore", True, Severity.DOUBT, LOOK, id="told-not-to"),
        pytest.param(31, "report", True, Severity.DOUBT, LOOK, id="can-not"),
    ],
)
def test_proxy_after_its_payload_is_judged_by_the_rules(
    age, decision, is_stopping, severity, command
):
    said = asked.proxy("a", "job", decision, message="all done", ended=stamp(age))
    (found,) = finished_pods.judge([said], now=NOW, application="app", is_stopping=is_stopping)
    if severity is None:
        assert found == Said.NO_PROXY_OUTLIVES()
    else:
        reason = f"all done ({decision})"
        named = Said.POD_NOT_COMPLETE(pod="a/job", age=age, reason=reason, command=command)
        assert found == dataclasses.replace(named, severity=severity)


def test_pod_whose_payload_has_not_ended_is_not_named():
    said = asked.proxy("a", "job")
    (found,) = finished_pods.judge([said], now=NOW, application="app", is_stopping=True)
    assert found == Said.NO_PROXY_OUTLIVES()


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
    found = list(finished_pods.judge_collectors([given], now=NOW))
    assert found == ([Said.COLLECTOR_WAITS(pod="a/job", age=31)] if waits else [])
