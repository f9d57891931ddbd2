"""What the charm says of the workload's counts."""

import types

from integrator_contract.answers import Summary, Trouble
from istio_integrator.lifecycle import answers
from tests import shown
from tests.unit.cases import cases

COUNTED = {"eligible": 3, "in_mesh": 3, "converging": 0, "proposed": 0, "reported": 0}
NO_EVICTION = (
    "not allowed to create pods/eviction: pods is forbidden: User "
    '"system:serviceaccount:kubeflow:app" cannot create resource "pods/eviction" in API group "" '
    'in the namespace "kubeflow"'
)


def trouble(reason, message, pod="", workload="StatefulSet/db", *, passing=False):
    return Trouble(workload, reason, message, pod, passing)


def progress(*, is_automatic=True, troubles=(), **values) -> list[tuple[str, str]]:
    summary = Summary(**{**COUNTED, **values}, troubles=tuple(troubles))
    context = types.SimpleNamespace(application="app", model="m", mesh=None)
    said = answers.progress(summary, context, is_automatic=is_automatic)
    return [(each.name, each.message) for each in map(shown.status, said)]


STOP = "; run: juju config app restart-pods=manual; this stops it"
HANGS = trouble("ReplacementHangs", "the replacement db-0 cannot start: db: ErrImagePull", "db-0")
STARTS = trouble("ReplacementStarting", "waiting for db-0 to be Ready", "db-0", passing=True)
REFUSED = trouble("ReplacementRefused", 'webhook "v.kyverno.svc" refuses: no latest tags')
LIST = "run: juju run app/leader list-uninjected"
RESTART = "run: juju run app/leader restart-uninjected"
DESCRIBE = "run: kubectl -n m describe pod db-0"
ADMIT = "run: juju trust app --scope=cluster"


@cases(
    ("values", "status", "message"),
    all_in=({}, "active", "3/3 pods in mesh"),
    some_reported=({"reported": 2}, "active", "3/3 pods in mesh, 2 need a restart by hand"),
    outside=(
        {"unwanted": 1},
        "active",
        "3/3 pods in mesh, 1 outside the mesh with a sidecar: restart-uninjected",
    ),
    old_proxies=({"stale": 3}, "active", "3/3 pods in mesh, 3 with an old proxy: restart-stale"),
    converging=(
        {"in_mesh": 1, "converging": 1},
        "maintenance",
        f"1/3 pods in mesh, 1 being replaced{STOP}",
    ),
    asked_for=(
        {"in_mesh": 1, "converging": 1, "is_automatic": False},
        "maintenance",
        "1/3 pods in mesh, 1 being replaced",
    ),
    starting=(
        {"in_mesh": 1, "converging": 2, "troubles": [STARTS]},
        "waiting",
        f"1/3 pods in mesh, waiting for db-0 to be Ready{STOP}",
    ),
    nothing_begun=({"in_mesh": 1}, "maintenance", "1/3 pods in mesh, 2 waiting to be replaced"),
    manual=({"in_mesh": 1, "proposed": 2}, "blocked", f"1/3 pods in mesh; {RESTART}"),
    hangs=(
        {"in_mesh": 1, "converging": 2, "troubles": [HANGS, STARTS]},
        "blocked",
        f"StatefulSet/db: the replacement db-0 cannot start: db: ErrImagePull; {DESCRIBE}",
    ),
    refused=(
        {"in_mesh": 1, "troubles": [REFUSED] * 2},
        "blocked",
        f'StatefulSet/db: webhook "v.kyverno.svc" refuses: no latest tags, and 1 more; {LIST}',
    ),
    not_served=(
        {"troubles": [trouble("NotServed", "istiod has not", workload="")]},
        "blocked",
        "istiod has not; run: kubectl get namespace m --show-labels",
    ),
    wrong_order=(
        {"in_mesh": 2, "troubles": [trouble("WrongOrder", "not charm", "db-0")]},
        "blocked",
        f"StatefulSet/db: not charm; {RESTART}",
    ),
    budget=(
        {"in_mesh": 2, "troubles": [trouble("DisruptionBudget", "not now", passing=True)]},
        "waiting",
        "2/3 pods in mesh, StatefulSet/db waits: not now",
    ),
    eviction_forbidden=(
        {"in_mesh": 2, "troubles": [trouble("Forbidden", NO_EVICTION)]},
        "blocked",
        f"missing permission: create pods/eviction; {ADMIT}",
    ),
)
def test_progress_is_said(values, status, message):
    assert progress(**values)[0] == (status, message)


def test_only_waiting_is_said_while_a_replacement_starts():
    said = progress(in_mesh=1, converging=2, troubles=[STARTS])
    assert [name for name, _ in said] == ["waiting", "active"]
