"""Which PeerAuthentication decides, as istiod composes them."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.istio import peer_authentication
from istio_integrator.istio.peer_authentication import PeerAuthentication

ROOT, MODEL = "istio-system", "kubeflow"
LABELS = {"app": "minio"}


def policy(name="p", namespace=MODEL, created="2026-01-01T00:00:00Z", **fields):
    return PeerAuthentication(namespace, name, created, **fields)


STRICT = policy("all", mode="STRICT")
OPEN_9000 = policy("open", selector=LABELS, ports={9000: "PERMISSIVE"})
EARLIER, LATER = "2025-01-01T00:00:00Z", "2026-06-01T00:00:00Z"


def mode(*policies, port=9000, labels=LABELS):
    return peer_authentication.decide(
        policies, labels, namespace=MODEL, root_namespace=ROOT, port=port
    ).mode


@pytest.mark.parametrize(
    ("policies", "want"),
    [
        pytest.param([], "PERMISSIVE", id="nobody says anything"),
        pytest.param([STRICT], "STRICT", id="the namespace"),
        pytest.param([STRICT, OPEN_9000], "PERMISSIVE", id="the port of the pod"),
        pytest.param(
            [STRICT, OPEN_9000, policy("b", created=EARLIER, selector=LABELS)],
            "STRICT",
            id="an older one for the pod says nothing, and no other is asked",
        ),
        pytest.param(
            [STRICT, OPEN_9000, policy("b", created=LATER, selector=LABELS, mode="STRICT")],
            "PERMISSIVE",
            id="a younger one for the pod is nothing",
        ),
        pytest.param(
            [
                policy("a", selector=LABELS, mode="STRICT"),
                dataclasses.replace(OPEN_9000, name="b"),
            ],
            "STRICT",
            id="of one second the first by name",
        ),
        pytest.param(
            [STRICT, policy("b", created=EARLIER, mode="PERMISSIVE")],
            "PERMISSIVE",
            id="an older one for the namespace",
        ),
        pytest.param(
            [policy("r", ROOT, mode="STRICT"), policy("b")], "STRICT", id="the mesh, inherited"
        ),
        pytest.param(
            [policy("r", ROOT, selector=LABELS, mode="STRICT")],
            "PERMISSIVE",
            id="a selector of the root namespace is for its own pods",
        ),
        pytest.param(
            [STRICT, policy("x", selector={"app": "other"}, ports={9000: "PERMISSIVE"})],
            "STRICT",
            id="other pods",
        ),
    ],
)
def test_oldest_policy_of_the_nearest_kind_decides(policies, want):
    assert mode(*policies) == want
    assert mode(*reversed(policies)) == want


def test_object_is_read_as_istiod_reads_it():
    obj = {
        "kind": "PeerAuthentication",
        "metadata": {"name": "a", "namespace": MODEL, "creationTimestamp": EARLIER},
        "spec": {
            "selector": {"matchLabels": LABELS},
            "mtls": {"mode": "UNSET"},
            "portLevelMtls": {"9000": {"mode": "DISABLE"}, "9001": {}, "0": {"mode": "STRICT"}},
        },
    }
    want = policy("a", created=EARLIER, selector=LABELS, ports={9000: "DISABLE"})
    assert peer_authentication.read_all([obj, {**obj, "spec": 7, "metadata": {}}]) == [want]


LABEL_SETS = st.sampled_from([{}, {"a": "1"}, {"a": "2"}, {"a": "1", "b": "1"}])
MODES = st.sampled_from(["", "STRICT", "PERMISSIVE", "DISABLE"])
POLICIES = st.lists(
    st.builds(
        PeerAuthentication,
        namespace=st.sampled_from([MODEL, ROOT, "elsewhere"]),
        name=st.sampled_from("abcdef"),
        created=st.sampled_from([EARLIER, "2026-01-01T00:00:00Z", LATER]),
        selector=LABEL_SETS,
        mode=MODES,
        ports=st.dictionaries(st.integers(1, 3), MODES.filter(bool), max_size=2),
    ),
    max_size=6,
)


@given(POLICIES, st.sampled_from([{"a": "1"}, {"a": "1", "b": "1"}]), st.integers(1, 3))
def test_what_is_younger_than_all_changes_nothing_that_another_for_the_same_pods_decides(
    policies, labels, port
):
    def decided(found):
        return peer_authentication.decide(
            found, labels, namespace=MODEL, root_namespace=ROOT, port=port
        ).mode

    youngest = policy("z", created="2027", selector=labels, ports={port: "STRICT"})
    had_one = any(
        each.namespace == MODEL and each.selector and each.selector.items() <= labels.items()
        for each in policies
    )
    want = decided(policies) if had_one else "STRICT"
    assert decided([*policies, youngest]) == want
