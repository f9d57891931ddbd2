"""What the charm says of the workload's counts."""

import ops
import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract.answers import Summary, Trouble
from istio_integrator.lifecycle import answers
from tests import shown

COUNTED = {"eligible": 3, "in_mesh": 3, "converging": 0, "proposed": 0, "reported": 0}
NO_EVICTION = (
    "not allowed to create pods/eviction: pods is forbidden: User "
    '"system:serviceaccount:kubeflow:app" cannot create resource "pods/eviction" in API group "" '
    'in the namespace "kubeflow"'
)


def trouble(reason, message, pod="", workload="StatefulSet/db", *, passing=False):
    return Trouble(workload, reason, message, pod, passing)


def progress(*, is_automatic=True, troubles=(), **values) -> list[ops.StatusBase]:
    summary = Summary(**{**COUNTED, **values}, troubles=tuple(troubles))
    said = answers.progress(summary, application="app", model="m", is_automatic=is_automatic)
    return [shown.status(each) for each in said]


STOP = "; run: juju config app restart-pods=manual; this stops it"
HANGS = trouble("ReplacementHangs", "the replacement db-0 cannot start: db: ErrImagePull", "db-0")
STARTS = trouble("ReplacementStarting", "waiting for db-0 to be Ready", "db-0", passing=True)
REFUSED = trouble("ReplacementRefused", 'webhook "v.kyverno.svc" refuses: no latest tags')
LIST = "run: juju run app/leader list-uninjected"


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
            {"unwanted": 1},
            ops.ActiveStatus(
                "3/3 pods in mesh, 1 outside the mesh with a sidecar: restart-uninjected"
            ),
            id="outside",
        ),
        pytest.param(
            {"in_mesh": 1, "converging": 1},
            ops.MaintenanceStatus(f"1/3 pods in mesh, 1 being replaced{STOP}"),
            id="converging",
        ),
        pytest.param(
            {"in_mesh": 1, "converging": 1, "is_automatic": False},
            ops.MaintenanceStatus("1/3 pods in mesh, 1 being replaced"),
            id="asked for",
        ),
        pytest.param(
            {"in_mesh": 1, "converging": 2, "troubles": [STARTS]},
            ops.WaitingStatus(f"1/3 pods in mesh, waiting for db-0 to be Ready{STOP}"),
            id="starting",
        ),
        pytest.param(
            {"in_mesh": 1, "proposed": 2},
            ops.BlockedStatus("1/3 pods in mesh; run: juju run app/leader restart-uninjected"),
            id="manual",
        ),
        pytest.param(
            {"in_mesh": 1, "converging": 2, "troubles": [HANGS, STARTS]},
            ops.BlockedStatus(
                "StatefulSet/db: the replacement db-0 cannot start: db: ErrImagePull; run: kubectl"
                " -n m describe pod db-0"
            ),
            id="hangs",
        ),
        pytest.param(
            {"in_mesh": 1, "troubles": [REFUSED] * 2},
            ops.BlockedStatus(
                'StatefulSet/db: webhook "v.kyverno.svc" refuses: no latest tags, and 1 more; '
                f"{LIST}"
            ),
            id="refused",
        ),
        pytest.param(
            {"troubles": [trouble("NotServed", "istiod has not", workload="")]},
            ops.BlockedStatus("istiod has not; run: kubectl get namespace m --show-labels"),
            id="not served",
        ),
        pytest.param(
            {"in_mesh": 2, "troubles": [trouble("WrongOrder", "not charm", "db-0")]},
            ops.BlockedStatus(
                "StatefulSet/db: not charm; run: juju run app/leader restart-uninjected"
            ),
            id="wrong order",
        ),
        pytest.param(
            {"in_mesh": 2, "troubles": [trouble("DisruptionBudget", "not now", passing=True)]},
            ops.WaitingStatus("2/3 pods in mesh, StatefulSet/db waits: not now"),
            id="budget",
        ),
        pytest.param(
            {"in_mesh": 2, "troubles": [trouble("Forbidden", NO_EVICTION)]},
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


def test_only_waiting_is_said_while_a_replacement_starts():
    kinds = {type(each) for each in progress(in_mesh=1, converging=2, troubles=[STARTS])}
    assert kinds == {ops.WaitingStatus, ops.ActiveStatus}


COUNTS = st.integers(0, 5)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_progress_is_active_only_when_every_pod_is_in(missing, inside, moving, asked):
    said = progress(
        eligible=inside + missing,
        in_mesh=inside,
        converging=min(moving, missing),
        proposed=min(asked, missing),
    )
    assert all(isinstance(status, ops.ActiveStatus) for status in said) is (missing == 0)
