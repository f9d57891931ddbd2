"""Which proxies are not of today."""

import json

import pytest
from sidecar_lifecycle.decide import eligible, injector_status, stale
from sidecar_lifecycle.decide.convergence import facts

from integrator_contract import names
from tests.unit.cases import cases
from tests.unit.workload import pods

NOW = stale.Proxy(revision="1-31", version="1.31.1")
PINNED = {"sidecar.istio.io/proxyImage": "proxyv2:1.30.4"}


def own(image):
    """What istiod notes about a pod that customises its proxy."""
    container = {"name": "istio-proxy", "image": image}
    return {"proxy.istio.io/overrides": json.dumps({"containers": [container]})}


def pod(revision="1-31", image="registry.invalid:5000/istio/proxyv2:1.31.1", notes=None, **values):
    status = {"revision": revision} if revision else {}
    return pods.pod(
        annotations={"sidecar.istio.io/status": json.dumps(status), **(notes or {})},
        proxy_spec={"image": image},
        **values,
    )


@cases(
    ("values", "want"),
    today=({}, ""),
    other_revision=({"revision": "default"}, "of revision default"),
    revision_that_is_not_known=({"revision": ""}, ""),
    longer_revision=({"revision": "1-31-2"}, "of revision 1-31-2, new ones are of 1-31"),
    longest_revision=({"revision": "x" * 63}, "of revision xxx"),
    older=({"image": "proxyv2:1.30.4"}, "its proxy is 1.30.4, istiod is 1.31.1"),
    older_patch=({"image": "proxyv2:1.31.0-distroless"}, "is 1.31.0"),
    numbers_not_text=({"image": "proxyv2:1.9.0"}, "is 1.9.0"),
    with_a_digest=({"image": "proxyv2:1.30.4@sha256:1231"}, "is 1.30.4"),
    pinned=({"image": "proxyv2:1.30.4", "notes": PINNED}, ""),
    pinned_by_its_own_container=({"image": "proxyv2:1.30.4", "notes": own("mirror/p:1.30.4")}, ""),
    own_container_without_image=({"image": "proxyv2:1.30.4", "notes": own("auto")}, "is 1.30.4"),
    own_container_unreadable=(
        {"image": "proxyv2:1.30.4", "notes": {"proxy.istio.io/overrides": "[" * 9999}},
        "is 1.30.4",
    ),
    pinned_in_another_revision=({"revision": "1-30", "notes": PINNED}, "of revision 1-30"),
    newer=({"image": "proxyv2:1.32.0"}, ""),
    as_far_as_both_say=({"image": "proxyv2:1.31"}, ""),
    only_a_digest=({"image": "proxyv2@sha256:1231"}, ""),
    tag_without_one=({"image": "registry.invalid:1.2/proxyv2:latest"}, ""),
    no_image=({"image": None}, ""),
    tag_of_5_000_digits=({"image": f"proxyv2:1.{'1' * 5000}"}, ""),
    nothing_but_tags=({"image": ":1.1" * 100_000 + "/x"}, ""),
    revision_that_is_no_label=({"revision": "x" * 64}, ""),
)
def test_proxy_is_behind(values, want):
    found = stale.describe_age(pod(**values), NOW)
    assert want in found
    assert bool(want) == bool(found)


def test_proxy_is_compared_with_a_version_as_far_as_that_says():
    assert stale.describe_age(pod(), stale.Proxy(version="1.31")) == ""
    found = stale.describe_age(pod(), stale.Proxy(version="1.32-alpha.2f0"))
    assert found == "its proxy is 1.31.1, istiod is 1.32-alpha.2f0"


def test_native_sidecar_is_read_too():
    proxy = pods.container("istio-proxy", restartPolicy="Always", image="proxyv2:1.30.4")
    native = pods.pod(init=[proxy], proxy_spec={"image": None})
    assert "1.30.4" in stale.describe_age(native, NOW)


HOSTILE = [
    '{"revision":"other"}'.ljust(injector_status.LONGEST_STATUS + 1),
    "[" * 2000,
    '{"a":' + "[" * 2000 + "]" * 2000 + "}",
    "1" * 5000,
    "\ud800",
]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"revision": 1}', *HOSTILE])
def test_status_that_says_nothing_is_no_reason(text):
    unclear = pods.pod(annotations={"sidecar.istio.io/status": text})
    assert stale.describe_age(unclear, NOW) == ""


def test_longest_status_is_read():
    text = '{"revision":"other"}'.ljust(injector_status.LONGEST_STATUS)
    found = stale.describe_age(pods.pod(annotations={names.SIDECAR_STATUS: text}), NOW)
    assert found == "its proxy is of revision other, new ones are of 1-31"


def test_nothing_is_old_when_nothing_is_known():
    assert stale.describe_age(pod(revision="default", image="proxyv2:1.30.4"), stale.UNKNOWN) == ""
    known = (stale.Proxy(revision="1-31"), stale.Proxy(version="1.31.1"), stale.UNKNOWN)
    assert [each.is_known for each in known] == [True, True, False]


@pytest.mark.parametrize("injection", ["enabled", "disabled"])
def test_only_pods_that_should_be_in_this_mesh_are_old(injection):
    scope = eligible.Scope(
        model="kf", application="app", namespace_labels={"istio-injection": injection}
    )
    found = facts.read_replica(pod(revision="other"), scope, NOW)
    assert bool(found.stale) is (injection == "enabled")
    # Its first container is not the charm's, so it is replaced for this fault.
    unit = {"init": [pods.container("charm-init")], "others": {"charm": pods.running()}}
    assert facts.read_replica(pod(revision="other", **unit), scope, NOW).stale == ""
