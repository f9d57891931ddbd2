"""Which PeerAuthentication decides, as istiod composes them."""

import dataclasses

from integrator_contract import names
from istio_integrator.istio import peer_authentication
from istio_integrator.istio.peer_authentication import PeerAuthentication
from tests.unit.cases import cases
from tests.unit.charm.security import members

ROOT, MODEL = "mesh-root", "kf"
LABELS = {"app": "minio"}


def policy(name="p", namespace=MODEL, created="2026-01-01T00:00:00Z", **fields):
    return PeerAuthentication(namespace, name, created, **fields)


# Ports without a selector are ignored.
STRICT = policy("all", mode="STRICT", ports={9000: "DISABLE"})
OPEN_9000 = policy("open", selector=LABELS, ports={9000: "PERMISSIVE"})
EARLIER, LATER = "2025-01-01T00:00:00Z", "2026-06-01T00:00:00Z"


def mode(*policies):
    return peer_authentication.decide_mode(policies, LABELS, MODEL, ROOT, 9000).mode


@cases(
    ("policies", "want"),
    none=([], "PERMISSIVE"),
    namespace=([STRICT], "STRICT"),
    port_of_the_pod=([STRICT, OPEN_9000], "PERMISSIVE"),
    # No other policy is asked, although it says nothing of the port.
    older_for_the_pod=(
        [STRICT, OPEN_9000, policy("b", created=EARLIER, selector=LABELS)], "STRICT",
    ),
    younger_for_the_pod=(
        [STRICT, OPEN_9000, policy("b", created=LATER, selector=LABELS, mode="STRICT")],
        "PERMISSIVE",
    ),
    first_by_name_of_one_second=(
        [policy("a", selector=LABELS, mode="STRICT"), dataclasses.replace(OPEN_9000, name="b")],
        "STRICT",
    ),
    # Names are compared as names, and the namespace only of equal ones.
    name_that_goes_on=(
        [policy("a", selector=LABELS, mode="STRICT"),
        policy("a-b", selector=LABELS, mode="PERMISSIVE")], "STRICT",
    ),
    older_for_the_namespace=(
        [STRICT, policy("b", created=EARLIER, mode="PERMISSIVE")], "PERMISSIVE",
    ),
    mesh_is_inherited=([policy("r", ROOT, mode="STRICT"), policy("b")], "STRICT"),
    pods_of_the_root_namespace=([policy("r", ROOT, selector=LABELS, mode="STRICT")], "PERMISSIVE"),
    other_pods=(
        [STRICT, policy("x", selector={"app": "other"}, ports={9000: "PERMISSIVE"})], "STRICT",
    ),
)  # fmt: skip
def test_oldest_policy_of_the_nearest_kind_decides(policies, want):
    assert mode(*policies) == want
    assert mode(*reversed(policies)) == want


def test_pods_of_the_root_namespace_have_no_policy_of_their_own():
    found = policy("r", ROOT, selector=LABELS, mode="STRICT")
    assert peer_authentication.decide_mode([found], LABELS, ROOT, ROOT).mode == "PERMISSIVE"


def test_object_is_read_as_istiod_reads_it():
    ports = {9000: "DISABLE", 9001: None, 0: "STRICT", 65536: "STRICT", "http": "STRICT"}
    metadata = {"creationTimestamp": EARLIER, "labels": {names.OWNER: "kf.mesh-2"}}
    obj = members.peers("a", mode="UNSET", selector=LABELS, ports=ports, **metadata)
    want = policy(
        "a", created=EARLIER, selector=LABELS, ports={9000: "DISABLE"}, owner="kf.mesh-2"
    )
    assert peer_authentication.read_all([obj, {**obj, "spec": 7, "metadata": {}}]) == [want]
