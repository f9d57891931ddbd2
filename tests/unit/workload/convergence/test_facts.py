"""The facts that the plan decides on, from pods as Kubernetes has them."""

import pytest
from sidecar_lifecycle.decide import eligible
from sidecar_lifecycle.decide.convergence import facts
from sidecar_lifecycle.model import types

from tests.unit.workload import pods

WANTED = eligible.Wanted(True, "NamespaceInjection", "its namespace says so")
OURS = eligible.Ownership("StatefulSet/a", True, "", "")
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}


def replica(**values):
    return facts.replica(pods.pod(**values), WANTED, OURS, in_mesh=False)


def test_a_ready_pod_says_since_when():
    found = replica(conditions=[READY], creationTimestamp="2026-01-01T00:00:00Z")

    assert found.ready_since - found.created == 60
    assert found.ready


def test_a_terminating_pod_is_not_ready():
    found = replica(conditions=[READY], deletionTimestamp="2026-01-01T00:02:00Z")

    assert found.terminating
    assert not found.ready


@pytest.mark.parametrize(
    ("values", "want"),
    [
        pytest.param({"main": pods.waiting()}, True, id="container"),
        pytest.param(
            {"init_statuses": [pods.status("charm-init", pods.waiting())]}, True, id="init"
        ),
        pytest.param({"main": pods.waiting("ImagePullBackOff")}, False, id="no-image"),
        pytest.param({"main": pods.running()}, False, id="running"),
    ],
)
def test_a_crash_loop_is_seen_in_any_container(values, want):
    assert replica(**values).crash_looping is want


@pytest.mark.parametrize("label", ["pod-template-hash", "controller-revision-hash"])
def test_the_template_is_known_by_its_hash(label):
    assert replica(labels={label: "abc"}).revision == "abc"


def test_what_is_not_ours_says_why():
    not_ours = eligible.Ownership("", False, "BarePod", "nothing would create it again")
    found = facts.replica(pods.pod(), WANTED, not_ours, in_mesh=False)

    assert (found.fixable, found.reason, found.message) == (
        *(False, "BarePod"),
        "nothing would create it again",
    )


def test_what_is_ours_or_not_wanted_says_why_it_is_so():
    not_ours = eligible.Ownership("", False, "BarePod", "nothing would create it again")
    unwanted = eligible.Wanted(False, "Revision", "another mesh's")
    for wanted, ownership in ((WANTED, OURS), (unwanted, OURS), (unwanted, not_ours)):
        found = facts.replica(pods.pod(), wanted, ownership, in_mesh=False)
        assert (found.reason, found.message) == (wanted.reason, wanted.message)


def scope(labels=None, **settings):
    return eligible.Scope(model="m", application="a", namespace_labels=labels or {}, **settings)


def test_the_fingerprint_follows_what_decides_about_injection():
    enabled = {"istio-injection": "enabled"}
    first = facts.fingerprint(scope(enabled), ("u1",))

    assert facts.fingerprint(scope({**enabled, "other": "x"}), ("u1",)) == first
    others = [
        facts.fingerprint(scope(enabled), ("u2",)),
        facts.fingerprint(scope({}), ("u1",)),
        facts.fingerprint(scope(enabled, mesh_revision="x"), ("u1",)),
        facts.fingerprint(scope(enabled, excluded_pods="a in (b, c)"), ("u1",)),
        facts.fingerprint(scope(enabled, excluded_pods="a in (b, d)"), ("u1",)),
    ]
    assert len({first, *others}) == 6
    other_order = scope(enabled, excluded_pods="a in (c, b)")
    assert facts.fingerprint(other_order, ("u1",)) == others[3]


def test_a_pod_without_times_has_facts_all_the_same():
    assert facts.replica(types.Pod(), WANTED, OURS, in_mesh=False).created == 0
