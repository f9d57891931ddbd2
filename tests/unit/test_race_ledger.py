"""The race matrix judges by these books: they must show what may not happen."""

from tests.e2e import race_ledger, race_world

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def pod(workload, number=0, *, uid="", ready=True, going=False, injected=False):
    kind, name = workload.split("/")
    meta = {
        "name": f"{name}-{number}",
        "uid": uid or f"{name}-{number}",
        "ownerReferences": [{"kind": kind, "name": name, "controller": True}],
        "annotations": {race_ledger.STATUS: "{}"} if injected else {},
    }
    if going:
        meta["deletionTimestamp"] = "2026-01-01T00:05:00Z"
    return {"metadata": meta, "status": {"conditions": [READY] if ready else []}}


def ledger(*events, **replicas):
    books = race_ledger.Ledger({f"StatefulSet/{name}": count for name, count in replicas.items()})
    for event, item in events:
        books.add(event, item, at=0)
    return books


def whole(name, count):
    return [("ADDED", pod(f"StatefulSet/{name}", number)) for number in range(count)]


def taken(name, number=0):
    return "MODIFIED", pod(f"StatefulSet/{name}", number, going=True)


def made(name, number=0, *, ready=True):
    item = pod(f"StatefulSet/{name}", number, uid=f"new-{number}", ready=ready, injected=True)
    return "ADDED", item


def test_workloads_that_miss_a_pod_at_the_same_time_are_counted():
    events = [*whole("a", 1), *whole("b", 1), *whole("c", 1)]
    events += [taken("a"), made("a", ready=False), taken("b"), made("a"), taken("c")]

    assert ledger(*events, a=1, b=1, c=1).most_at_once == 2


def test_a_pod_without_ready_siblings_empties_its_workload():
    events = [*whole("a", 2), taken("a", 1)]
    assert ledger(*events, a=2).emptied == set()

    events.append(("MODIFIED", pod("StatefulSet/a", 0, ready=False)))
    assert ledger(*events, a=2).emptied == {"StatefulSet/a"}


def test_the_end_of_a_pod_is_noted_once_as_it_was_before():
    events = [*whole("a", 1), taken("a"), taken("a"), ("DELETED", taken("a")[1])]
    (found,) = ledger(*events, a=1).taken

    assert (found.pod.going, found.pod.injected) == (False, False)


def test_a_pod_that_vanishes_at_once_was_taken_too():
    assert len(ledger(*whole("a", 1), ("DELETED", whole("a", 1)[0][1]), a=1).taken) == 1


def test_pods_of_a_deployment_are_its_own():
    item = pod("ReplicaSet/web-7c9d")

    assert race_ledger.parse(item).workload == "Deployment/web"


def test_marks_of_hooks_are_read_in_their_order():
    log = """\
unit-dashboard-0: 20:45:01 INFO unit.dashboard/0.juju-log begin install
unit-dashboard-0: 20:45:01 INFO unit.dashboard/0.juju-log end install
unit-dashboard-0: 20:45:02 INFO unit.dashboard/0.juju-log begin setup
unit-dashboard-0: 20:45:02 INFO unit.dashboard/0.worker.uniter hook "x" was interrupted
unit-dashboard-0: 20:46:02 INFO unit.dashboard/0.juju-log begin setup
"""
    assert race_world.hooks(log) == {
        ("dashboard/0", "install"): "be",
        ("dashboard/0", "setup"): "bb",
    }
