"""What the charm reads in the workload's answers, and says of them."""

import json

import ops
import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract.answers import PodAnswer, Trouble
from istio_integrator.kube import errors
from istio_integrator.lifecycle import answers


def answer(**summary) -> str:
    values = {
        "eligible": 3,
        "in_mesh": 3,
        "converging": 0,
        "proposed": 0,
        "guarded": [],
        "reported": 0,
        "settled_before_us": False,
        **summary,
    }
    return json.dumps({"summary": values})


def test_answer_is_read():
    pod = {
        "namespace": "kubeflow",
        "name": "a-0",
        "workload": "StatefulSet/a",
        "fixable": True,
        "reason": "MissedInjection",
        "message": "it should have one",
    }
    guarded = [{"workload": "Deployment/b", "reason": "AgainUninjected", "message": "no sidecar"}]
    read = answers.parse(f"{json.dumps(pod)}\n{answer(guarded=guarded)}\n")
    assert read.pods == [PodAnswer(**pod)]
    assert read.summary.guarded == (Trouble("Deployment/b", "AgainUninjected", "no sidecar"),)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "x",
        "{}",
        '{"summary": {}}',
        '{"summary": 3}',
        "[1]",
        f"1\n{answer()}",
        f"{{}}\n{answer()}",
    ],
)
def test_answer_that_is_none_is_an_error(output):
    with pytest.raises(errors.LifecycleError):
        answers.parse(output)


NO_EVICTION = (
    "not allowed to create pods/eviction: pods is forbidden: User "
    '"system:serviceaccount:kubeflow:app" cannot create resource "pods/eviction" in API group "" '
    'in the namespace "kubeflow"'
)


def paused(reason, message):
    return {"workload": "StatefulSet/db", "reason": reason, "message": message}


def progress(**values) -> list[ops.StatusBase]:
    summary = answers.parse(answer(**values)).summary
    return list(answers.progress(summary, application="app"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, ops.ActiveStatus("3/3 pods in mesh"), id="all in"),
        pytest.param(
            {"reported": 2},
            ops.ActiveStatus("3/3 pods in mesh, 2 need a restart by hand"),
            id="some reported",
        ),
        pytest.param(
            {"in_mesh": 1, "converging": 1},
            ops.MaintenanceStatus("1/3 pods in mesh, 1 being replaced"),
            id="converging",
        ),
        *(
            pytest.param(
                {"in_mesh": 1, "converging": 2, "minutes_left": minutes},
                ops.MaintenanceStatus(f"1/3 pods in mesh, 2 being replaced, about {said} left"),
                id=said,
            )
            for minutes, said in (
                (1, "1 min"),
                (59, "59 min"),
                (60, "1 h 0 min"),
                (200, "3 h 20 min"),
            )
        ),
        pytest.param(
            {"in_mesh": 1, "proposed": 2},
            ops.BlockedStatus("1/3 pods in mesh; run: juju run app/leader restart-uninjected"),
            id="manual",
        ),
        pytest.param(
            {"in_mesh": 1, "proposed": 2, "settled_before_us": True},
            ops.BlockedStatus(
                "1/3 pods in mesh, pods predate this charm; run: juju run app/leader "
                "restart-uninjected"
            ),
            id="settled",
        ),
        pytest.param(
            {"in_mesh": 1, "proposed": 1, "settled_before_us": True, "converging": 1},
            ops.MaintenanceStatus("1/3 pods in mesh, 1 being replaced"),
            id="settled but asked for",
        ),
        pytest.param(
            {
                "in_mesh": 1,
                "guarded": [{"workload": "Deployment/a", "reason": "r", "message": "m"}] * 2,
            },
            ops.BlockedStatus("Deployment/a: m (and 1 more)"),
            id="guarded",
        ),
        pytest.param(
            {"in_mesh": 2, "paused": [paused("DisruptionBudget", "it would violate the budget")]},
            ops.WaitingStatus(
                "2/3 pods in mesh, StatefulSet/db waits: it would violate the budget"
            ),
            id="budget",
        ),
        pytest.param(
            {"in_mesh": 2, "paused": [paused("Forbidden", NO_EVICTION)]},
            ops.BlockedStatus(
                "missing permission: create pods/eviction; run: juju trust app --scope=cluster"
            ),
            id="eviction-forbidden",
        ),
        pytest.param(
            {"stale": 3},
            ops.ActiveStatus("3/3 pods in mesh, 3 with an old proxy: restart-stale"),
            id="old proxies",
        ),
    ],
)
def test_progress_is_said(values, expected):
    assert progress(**values)[0] == expected


COUNTS = st.integers(0, 5)


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.booleans())
def test_progress_is_active_only_when_every_pod_is_in(missing, inside, moving, asked, settled):
    said = progress(
        eligible=inside + missing,
        in_mesh=inside,
        converging=min(moving, missing),
        proposed=min(asked, missing),
        settled_before_us=settled,
    )
    assert all(isinstance(status, ops.ActiveStatus) for status in said) is (missing == 0)
