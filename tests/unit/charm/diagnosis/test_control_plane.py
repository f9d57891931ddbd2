"""istiod, versions, the namespace's label and the CNI plugin."""

import dataclasses

import ops
import pytest
from hypothesis import given
from hypothesis import strategies as st

import membership
import mesh
from diagnosis import control_plane

ALIVE = mesh.Mesh(
    namespace="istio-system",
    revision="default",
    is_default=True,
    version="1.31.1",
    alive=True,
    probed=True,
)


def levels(findings):
    return [each.level.value for each in findings]


def only(findings):
    (found,) = list(findings)
    return found


@pytest.mark.parametrize(
    ("found", "said", "level", "words"),
    [
        pytest.param(ALIVE, (), "✓", "gave a dry-run pod", id="alive"),
        pytest.param(
            dataclasses.replace(ALIVE, probed=False), (), "!", "no dry-run pod", id="not-probed"
        ),
        pytest.param(
            dataclasses.replace(ALIVE, alive=False, problem="does not inject: refused"),
            [ops.WaitingStatus("istio-system/istiod does not inject: refused")],
            "✗",
            "istiod 1.31 does not inject: refused",
            id="dead",
        ),
        pytest.param(
            None, [ops.WaitingStatus("waiting for istiod")], "✗", "waiting for istiod", id="none"
        ),
    ],
)
def test_istiod_is_judged_by_its_answer(found, said, level, words):
    found = only(control_plane.istiod(found, said, application="app"))
    assert (found.level.value, words in found.seen) == (level, True)
    assert bool(found.next) == (level != "✓")


def test_several_istiods_are_broken_with_the_command_of_the_status():
    said = ops.BlockedStatus("several Istios: a, b; run: juju config app revision=a")
    found = only(control_plane.istiod(None, [said], application="app"))
    assert (found.seen, found.next) == ("several Istios: a, b", "juju config app revision=a")


MINORS = st.tuples(st.just(1), st.integers(0, 40))


@given(MINORS, MINORS)
def test_proxy_is_supported_up_to_one_version_before_istiod(own, proxy):
    found = dataclasses.replace(ALIVE, version=f"{own[0]}.{own[1]}.0")
    said = list(
        control_plane.versions(
            found, ["v1.36.3"], {"Pod a/b": f"1.{proxy[1]}.5"}, application="app"
        )
    )
    text = " ".join(each.seen for each in said)
    assert ("older than" in text) == (proxy[1] < own[1] - 1)
    assert ("newer than" in text) == (proxy[1] > own[1])


@pytest.mark.parametrize(
    ("version", "words"),
    [
        pytest.param("1.23.4", "nativeSidecar", id="no-annotation"),
        pytest.param("1.25.0", "drain for 5 s", id="drains"),
        pytest.param("1.26.0", "istiod 1.26.0, kubelets 1.30.1, 1.36.3", id="no-limit"),
        pytest.param("", "istiod unknown", id="unknown"),
    ],
)
def test_version_is_judged_by_its_known_limits(version, words):
    found = dataclasses.replace(ALIVE, version=version)
    said = list(control_plane.versions(found, ["v1.36.3", "v1.30.1"], {}, application="app"))
    assert words in said[0].seen
    assert (said[0].level.value == "!") == (version in ("1.23.4", "1.25.0"))


def test_kubelet_that_is_too_old_for_the_wish_is_named():
    found = dataclasses.replace(ALIVE, native_warning="a node's kubelet is 1.30: beta there")
    assert "1.30" in only(control_plane.versions(found, ["v1.30.0"], {}, application="app")).seen


@pytest.mark.parametrize(
    ("decision", "wanted", "level"),
    [
        pytest.param(membership.Decision(joined=True), "namespace", "✓", id="member"),
        pytest.param(
            membership.Decision(blocked="both labels: run: kubectl label ns a x-"),
            "namespace",
            "✗",
            id="conflict",
        ),
        pytest.param(
            membership.Decision(labels={"istio-injection": "enabled"}, joined=True),
            "namespace",
            "✗",
            id="not-written",
        ),
        pytest.param(membership.Decision(waiting="waiting"), "namespace", "!", id="waiting"),
        pytest.param(membership.Decision(), "namespace", "!", id="nothing-to-join"),
        pytest.param(membership.Decision(), "none", "✓", id="not-wanted"),
    ],
)
def test_label_is_judged_by_the_decision_of_the_charm_itself(decision, wanted, level):
    marks = {"istio-injection": "enabled"}
    assert levels(control_plane.label(decision, marks, wanted=wanted, model="a")) == [level]


def pod(*, inits=("istio-validation",), proxy="istio-proxy", **annotations):
    marks = {key.replace("_", "/"): value for key, value in annotations.items()}
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "a", "annotations": marks},
        "spec": {
            "containers": [{"name": "main"}, {"name": proxy}],
            "initContainers": [{"name": name} for name in inits],
        },
    }


def daemonset(desired, ready):
    return {
        "kind": "DaemonSet",
        "metadata": {"name": "istio-cni-node", "namespace": "kube-system"},
        "status": {"desiredNumberScheduled": desired, "numberReady": ready},
    }


OPEN = {"traffic.sidecar.istio.io_excludeOutboundPorts": "17070"}


@pytest.mark.parametrize(
    ("pods", "daemonsets", "want"),
    [
        pytest.param([pod()], [daemonset(3, 3)], ["✓"], id="well"),
        pytest.param([pod()], [daemonset(3, 2)], ["✗"], id="a-node-without-it"),
        pytest.param([pod(inits=("istio-validation", "charm-init"))], [], ["!"], id="cut-off"),
        pytest.param([pod(inits=("istio-validation", "init"), **OPEN)], [], ["✓"], id="excluded"),
        pytest.param([pod(inits=("istio-proxy", "init"), proxy="x")], [], ["✓"], id="native"),
    ],
)
def test_cni_plugin_and_init_containers(pods, daemonsets, want):
    found = dataclasses.replace(ALIVE, cni=True)
    assert levels(control_plane.cni(found, pods, daemonsets, application="app")) == want


def test_without_the_plugin_no_init_container_is_cut_off():
    pods = [pod(inits=("istio-init", "init"))]
    assert levels(control_plane.cni(ALIVE, pods, [daemonset(3, 0)], application="app")) == ["✓"]


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("docker.io/istio/proxyv2:1.31.1", "1.31.1"),
        ("registry:5000/proxyv2:1.29-distroless", "1.29"),
        ("proxyv2@sha256:0123", ""),
    ],
)
def test_version_of_a_proxy_is_its_images_tag(image, want):
    given = {"spec": {"containers": [{"name": "istio-proxy", "image": image}]}}
    assert control_plane.proxy_version(given) == want
