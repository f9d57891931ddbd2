import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.kit import timeline

RUNNING = {"running": {}}
DONE = {"terminated": {"exitCode": 0}}
ERROR = {"terminated": {"exitCode": 1}}
WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}


def pod(main, proxy=None, *, restarts=0, uid="1", native=False, **metadata):
    statuses = [{"name": "main", "state": main, "restartCount": restarts}]
    proxies = [{"name": "istio-proxy"}] if proxy is not None else []
    proxy_statuses = [{"name": "istio-proxy", "state": proxy}] if proxy is not None else []
    where, other = ("initContainers", "containers") if native else ("containers", "initContainers")
    spec = {where: proxies, other: []}
    spec["containers"] = [*spec["containers"], {"name": "main"}]
    status = {"containerStatuses": statuses}
    field = "initContainerStatuses" if native else "containerStatuses"
    status[field] = [*status.get(field, []), *proxy_statuses]
    return {
        "metadata": {"uid": uid, "name": f"pod-{uid}", "namespace": "ns", **metadata},
        "spec": spec,
        "status": status,
    }


def played(*frames):
    story = timeline.Timeline()
    for at, event, seen in frames:
        story.add(at, event, seen)
    return story


def test_a_state_lasts_until_the_next_one():
    story = played(
        (1.0, "ADDED", pod(WAITING)),
        (2.0, "MODIFIED", pod(RUNNING)),
        (2.5, "MODIFIED", pod(RUNNING)),
        (4.0, "MODIFIED", pod(DONE)),
    )
    intervals = story.pods["1"].containers["main"].intervals
    assert [(i.seen.state, i.start, i.end) for i in intervals] == [
        (timeline.State.WAITING, 1.0, 2.0),
        (timeline.State.RUNNING, 2.0, 4.0),
        (timeline.State.FINISHED, 4.0, None),
    ]


def test_a_deleted_pod_has_no_open_interval():
    story = played((1.0, "ADDED", pod(RUNNING, RUNNING)), (3.0, "DELETED", pod(RUNNING, RUNNING)))
    line = story.pods["1"]
    assert line.deleted == 3.0
    assert {i.end for c in line.containers.values() for i in c.intervals} == {3.0}
    assert line.is_going


@pytest.mark.parametrize("native", [False, True])
def test_the_proxy_is_told_from_the_payload(native):
    line = played((0.0, "ADDED", pod(RUNNING, RUNNING, native=native))).pods["1"]
    assert line.proxy is line.containers["istio-proxy"]
    assert [container.name for container in line.payload] == ["main"]


@pytest.mark.parametrize(
    ("frames", "failures"),
    [
        pytest.param([(RUNNING, 0)], 0, id="still-running"),
        pytest.param(
            [(RUNNING, 0), (ERROR, 0), (WAITING, 0), (RUNNING, 1), (DONE, 1)], 1, id="seen"
        ),
        pytest.param([(RUNNING, 0), (RUNNING, 1), (DONE, 1)], 1, id="end-not-reported"),
        pytest.param([(ERROR, 0), (ERROR, 1)], 2, id="twice"),
        pytest.param([(DONE, 0)], 0, id="finished"),
    ],
)
def test_failed_runs_are_counted_once_each(frames, failures):
    story = timeline.Timeline()
    for at, (state, restarts) in enumerate(frames):
        story.add(at, "MODIFIED", pod(state, restarts=restarts))
    assert timeline.failures(story.pods.values()) == failures


def test_payload_end_is_that_of_the_last_pod_and_only_when_all_ended():
    story = played((1.0, "ADDED", pod(DONE, RUNNING)), (2.0, "ADDED", pod(RUNNING, uid="2")))
    assert timeline.last_payload_end(story.pods.values()) is None
    story.add(5.0, "MODIFIED", pod(ERROR, uid="2"))
    assert timeline.last_payload_end(story.pods.values()) == 5.0
    assert timeline.last_payload_end([]) is None


def test_proxy_delay_counts_from_the_payloads_end_to_the_proxys():
    story = played((1.0, "ADDED", pod(DONE, RUNNING)), (1.5, "MODIFIED", pod(DONE, DONE)))
    assert timeline.proxy_delays(story.pods.values()) == [0.5]


def test_pods_are_selected_by_namespace_labels_and_prefix():
    story = played(
        (0.0, "ADDED", pod(RUNNING, labels={"app": "a"})),
        (0.0, "ADDED", pod(RUNNING, uid="2", labels={"app": "b"})),
    )
    assert [line.uid for line in story.select("ns", {"app": "b"})] == ["2"]
    assert [line.uid for line in story.select("ns", prefix="pod-1")] == ["1"]
    assert story.select("other") == []


@given(st.lists(st.sampled_from([RUNNING, DONE, ERROR, WAITING]), min_size=1))
def test_intervals_never_overlap_and_leave_no_gap(states):
    story = timeline.Timeline()
    for at, state in enumerate(states):
        story.add(at, "MODIFIED", pod(state))
    intervals = story.pods["1"].containers["main"].intervals
    assert intervals[0].start == 0
    assert intervals[-1].end is None
    assert all(a.end == b.start for a, b in itertools.pairwise(intervals))
    assert all(a.seen != b.seen for a, b in itertools.pairwise(intervals))


def test_quantile_is_the_nearest_rank():
    assert timeline.quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
    assert timeline.quantile([1.0], 0.99) == 1.0
