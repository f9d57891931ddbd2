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


def pods(in_mesh, *troubles, **values):
    """Return what the workload says of three pods."""
    return {"in_mesh": in_mesh, "troubles": troubles, **values}


MANUAL = "restart-pods=manual"
STOP = f"; run: juju config mesh-2 {MANUAL}; {MANUAL} stops the restarts"
CANNOT_START = "the replacement db-0 cannot start: db: ErrImagePull"
HANGS = trouble("ReplacementHangs", CANNOT_START, "db-0")
STARTS = trouble("ReplacementStarting", "waiting for db-0 to be Ready", "db-0", passing=True)
WAITS = trouble("DisruptionBudget", "not now", passing=True)
NO_LATEST = 'webhook "v.kyverno.svc" refuses: no latest tags'
NOT_READY = "db-0 is not Ready, so StatefulSet/db waits"
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
    ("values", "said"),
    all_in=(pods(3), "active: 3/3 pods in mesh"),
    some_reported=(pods(3, reported=2), "active: 3/3 pods in mesh, 2 need a restart by hand"),
    outside_and_old_proxies=(pods(3, unwanted=1, stale=3), f"active: 3/3 pods in mesh, {BESIDE}"),
    converging=(
        pods(1, converging=1),
        f"maintenance: 1/3 pods in mesh, 1 waiting to be replaced{STOP}",
    ),
    asked_for=(
        pods(1, converging=1, mode="manual"),
        "maintenance: 1/3 pods in mesh, 1 waiting to be replaced",
    ),
    waits_for_long=(
        pods(2, trouble("NotReady", NOT_READY)),
        f"blocked: {NOT_READY} ({FORCE} ends this); {RESTART} force=true",
    ),
    in_order=(
        pods(2, trouble("OrderedReady", "StatefulSet/db waits", "db-0")),
        f"blocked: StatefulSet/db waits; {DESCRIBE}",
    ),
    missing=(
        pods(2, trouble("ReplacementHangs", "StatefulSet/db has 2 of 3")),
        "blocked: StatefulSet/db has 2 of 3; run: kubectl -n kf describe StatefulSet/db",
    ),
    lost_and_being_replaced=(
        pods(2, {**LOST, "passing": True}, converging=1),
        f"waiting: 2/3 pods in mesh, not charm{STOP}",
    ),
    starting=(
        pods(1, STARTS, WAITS, converging=2),
        f"waiting: 1/3 pods in mesh, waiting for db-0 to be Ready{STOP}",
    ),
    starting_by_hand=(
        pods(1, STARTS, converging=2, mode="manual"),
        "waiting: 1/3 pods in mesh, waiting for db-0 to be Ready",
    ),
    nothing_begun=(pods(1), "maintenance: 1/3 pods in mesh, 2 waiting to be replaced"),
    manual=(pods(1, proposed=2, mode="manual"), f"blocked: 1/3 pods in mesh; {RESTART}"),
    manual_beside_a_wait=(
        pods(1, STARTS, proposed=2, mode="manual"),
        f"blocked: 1/3 pods in mesh; {RESTART}",
    ),
    forbidden=(pods(1, proposed=2), f"blocked: 1/3 pods in mesh, 2 forbid eviction; {RESTART}"),
    hangs=(
        pods(1, HANGS, STARTS, converging=2),
        f"blocked: StatefulSet/db: {CANNOT_START}; {DESCRIBE}",
    ),
    refused=(
        pods(1, trouble("ReplacementRefused", NO_LATEST), HANGS),
        f"blocked: StatefulSet/db: {NO_LATEST}, and 1 more; {LIST}",
    ),
    not_served=(
        pods(3, trouble("NotServed", "istiod has not", workload="")),
        "blocked: istiod has not; run: kubectl get namespace kf --show-labels",
    ),
    wrong_order=(pods(2, LOST, converging=1), f"blocked: StatefulSet/db: not charm; {RESTART}"),
    changing=(
        pods(2, trouble("Changing", "StatefulSet/db is being updated")),
        "blocked: StatefulSet/db is being updated; run: kubectl -n kf describe StatefulSet/db",
    ),
    wrong_order_of_no_pod=(
        pods(2, trouble("WrongOrder", "not charm")),
        f"blocked: StatefulSet/db: not charm; {LIST}",
    ),
    budget=(
        pods(2, trouble("DisruptionBudget", "not now", passing=True)),
        "waiting: 2/3 pods in mesh, StatefulSet/db waits: not now",
    ),
    budget_of_a_workload_that_is_named=(
        pods(2, trouble("DisruptionBudget", "StatefulSet/db", passing=True)),
        "waiting: 2/3 pods in mesh, StatefulSet/db",
    ),
    eviction_forbidden=(
        pods(2, trouble("Forbidden", NO_EVICTION)),
        f"blocked: missing permission: create pods/eviction; {ADMIT}",
    ),
)
def test_progress_is_said(ctx, caplog, values, said):
    status = said.partition(":")[0]
    assert progress(ctx, **values).name == status
    lines = [each.getMessage() for each in caplog.records if each.name == "charm"]
    assert f"{said}." in lines
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
