"""Statuses for the workload's counts."""

import pytest

from tests.unit.cases import cases
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import state, status, workload

pytestmark = pytest.mark.usefixtures("installed")
NO_EVICTION = (
    "not allowed to create pods/eviction: pods is forbidden: User "
    '"system:serviceaccount:kf:app" cannot create resource "pods/eviction" in API group "" '
    'in the namespace "kf"'
)


def trouble(reason, message, pod="", workload="StatefulSet/db", *, passing=False):
    told = {"workload": workload, "reason": reason, "message": message, "pod": pod}
    return {**told, "passing": passing}


def progress(ctx, *, mode="auto", **values):
    counted = {"eligible": 3, "in_mesh": 3, **values}
    return status(ctx, state(workload(**counted), restart_pods=mode))


MANUAL = "restart-pods=manual"
STOP = f"; run: juju config mesh-2 {MANUAL}; {MANUAL} stops the restarts"
HANGS = trouble("ReplacementHangs", "the replacement db-0 cannot start: db: ErrImagePull", "db-0")
STARTS = trouble("ReplacementStarting", "waiting for db-0 to be Ready", "db-0", passing=True)
WAITS = trouble("DisruptionBudget", "not now", passing=True)
REFUSED = trouble("ReplacementRefused", 'webhook "v.kyverno.svc" refuses: no latest tags')
LIST = "run: juju run mesh-2/leader list-uninjected"
RESTART = "run: juju run mesh-2/leader restart-uninjected"
LOST = trouble("WrongOrder", "not charm", "db-0")
FORCE = "restart-uninjected force=true"
DESCRIBE = "run: kubectl -n kf describe pod db-0"
SEVERITIES = ("blocked:", "waiting:", "maintenance:")
BESIDE = (
    "1 outside the mesh with a sidecar: restart-uninjected, 3 with an old proxy: restart-stale"
)
ADMIT = "run: juju trust mesh-2 --scope=cluster"


@cases(
    ("values", "status", "message"),
    all_in=({}, "active", "3/3 pods in mesh"),
    some_reported=({"reported": 2}, "active", "3/3 pods in mesh, 2 need a restart by hand"),
    outside_and_old_proxies=({"unwanted": 1, "stale": 3}, "active", f"3/3 pods in mesh, {BESIDE}"),
    converging=(
        {"in_mesh": 1, "converging": 1},
        "maintenance",
        f"1/3 pods in mesh, 1 waiting to be replaced{STOP}",
    ),
    asked_for=(
        {"in_mesh": 1, "converging": 1, "mode": "manual"},
        "maintenance",
        "1/3 pods in mesh, 1 waiting to be replaced",
    ),
    waits_for_long=(
        {
            "in_mesh": 2,
            "troubles": [trouble("NotReady", "db-0 is not Ready, so StatefulSet/db waits")],
        },
        "blocked",
        f"db-0 is not Ready, so StatefulSet/db waits ({FORCE} ends this); {RESTART} force=true",
    ),
    in_order=(
        {"in_mesh": 2, "troubles": [trouble("OrderedReady", "StatefulSet/db waits", "db-0")]},
        "blocked",
        f"StatefulSet/db waits; {DESCRIBE}",
    ),
    missing=(
        {"in_mesh": 2, "troubles": [trouble("ReplacementHangs", "StatefulSet/db has 2 of 3")]},
        "blocked",
        "StatefulSet/db has 2 of 3; run: kubectl -n kf describe StatefulSet/db",
    ),
    lost_and_being_replaced=(
        {"in_mesh": 2, "converging": 1, "troubles": [{**LOST, "passing": True}]},
        "waiting",
        f"2/3 pods in mesh, not charm{STOP}",
    ),
    starting=(
        {"in_mesh": 1, "converging": 2, "troubles": [STARTS, WAITS]},
        "waiting",
        f"1/3 pods in mesh, waiting for db-0 to be Ready{STOP}",
    ),
    starting_by_hand=(
        {"in_mesh": 1, "converging": 2, "troubles": [STARTS], "mode": "manual"},
        "waiting",
        "1/3 pods in mesh, waiting for db-0 to be Ready",
    ),
    nothing_begun=({"in_mesh": 1}, "maintenance", "1/3 pods in mesh, 2 waiting to be replaced"),
    manual=(
        {"in_mesh": 1, "proposed": 2, "mode": "manual"},
        "blocked",
        f"1/3 pods in mesh; {RESTART}",
    ),
    forbidden=(
        {"in_mesh": 1, "proposed": 2},
        "blocked",
        f"1/3 pods in mesh, 2 forbid eviction; {RESTART}",
    ),
    hangs=(
        {"in_mesh": 1, "converging": 2, "troubles": [HANGS, STARTS]},
        "blocked",
        f"StatefulSet/db: the replacement db-0 cannot start: db: ErrImagePull; {DESCRIBE}",
    ),
    refused=(
        {"in_mesh": 1, "troubles": [REFUSED, HANGS]},
        "blocked",
        f'StatefulSet/db: webhook "v.kyverno.svc" refuses: no latest tags, and 1 more; {LIST}',
    ),
    not_served=(
        {"troubles": [trouble("NotServed", "istiod has not", workload="")]},
        "blocked",
        "istiod has not; run: kubectl get namespace kf --show-labels",
    ),
    wrong_order=(
        {"in_mesh": 2, "converging": 1, "troubles": [LOST]},
        "blocked",
        f"StatefulSet/db: not charm; {RESTART}",
    ),
    changing=(
        {"in_mesh": 2, "troubles": [trouble("Changing", "StatefulSet/db is being updated")]},
        "blocked",
        "StatefulSet/db is being updated; run: kubectl -n kf describe StatefulSet/db",
    ),
    wrong_order_of_no_pod=(
        {"in_mesh": 2, "troubles": [trouble("WrongOrder", "not charm")]},
        "blocked",
        f"StatefulSet/db: not charm; {LIST}",
    ),
    budget=(
        {"in_mesh": 2, "troubles": [trouble("DisruptionBudget", "not now", passing=True)]},
        "waiting",
        "2/3 pods in mesh, StatefulSet/db waits: not now",
    ),
    budget_of_a_workload_that_is_named=(
        {"in_mesh": 2, "troubles": [trouble("DisruptionBudget", "StatefulSet/db", passing=True)]},
        "waiting",
        "2/3 pods in mesh, StatefulSet/db",
    ),
    eviction_forbidden=(
        {"in_mesh": 2, "troubles": [trouble("Forbidden", NO_EVICTION)]},
        "blocked",
        f"missing permission: create pods/eviction; {ADMIT}",
    ),
)
def test_progress_is_said(ctx, caplog, values, status, message):
    assert progress(ctx, **values).name == status
    lines = [each.getMessage() for each in caplog.records if each.name == "charm"]
    assert f"{status}: {message}." in lines
    told = [each.partition(":")[0] for each in lines if each.startswith(SEVERITIES)]
    beside = {"waiting": STARTS, "maintenance": LOST}
    want = {status, *(key for key, each in beside.items() if each in values.get("troubles", ()))}
    assert sorted(told) == sorted(want - {"active"})


@pytest.mark.parametrize("pod", ["dashboard-0", f"ml-pipeline-{'x' * 60}-0"])
def test_waiting_status_shows_the_command_that_stops_restarts(ctx, pod):
    starts = trouble("ReplacementStarting", f"waiting for {pod} to be Ready", pod, passing=True)
    message = progress(ctx, in_mesh=0, converging=3, troubles=[starts]).message
    assert f"run: juju config mesh-2 {MANUAL}" in message[:100]
    assert f"0/3 pods in mesh, waiting for {pod}" in message
    assert message.endswith("; restart-pods=manual stops the restarts")


def test_pods_wait_for_an_istiod_that_is_away(ctx, fake, caplog):
    fake.labels("kf")["istio-injection"] = "enabled"
    fake_cluster.set_istiod(fake, alive=False)
    progress(ctx, in_mesh=1, converging=2)
    assert f"waiting: 1/3 pods in mesh, 2 waiting to be replaced{STOP}." in caplog.text
    assert "maintenance" not in caplog.text
