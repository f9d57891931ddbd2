"""Istio's CNI plugin, and init containers that it leaves without a network."""

import pytest

from istio_integrator.diagnosis.checks import cni


def levels(findings):
    return [each.level.value for each in findings]


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
RANGES = "traffic.sidecar.istio.io_includeOutboundIPRanges"
# As the injection template of Istio's charts writes them where the plugin redirects.
NOTED = {RANGES: "*", "traffic.sidecar.istio.io_excludeOutboundPorts": ""}
FEW = {RANGES: "10.0.0.0/8"}


@pytest.mark.parametrize(
    ("pods", "daemonsets", "want"),
    [
        pytest.param([pod()], [daemonset(3, 3)], ["✓"], id="well"),
        pytest.param([pod()], [daemonset(3, 2)], ["✗"], id="a-node-without-it"),
        pytest.param([pod(inits=("istio-validation", "charm-init"))], [], ["!"], id="cut-off"),
        pytest.param([pod(inits=("istio-validation", "init"), **OPEN)], [], ["✓"], id="excluded"),
        pytest.param([pod(inits=("istio-validation", "init"), **NOTED)], [], ["!"], id="istiod"),
        pytest.param([pod(inits=("istio-validation", "init"), **FEW)], [], ["✓"], id="few-ranges"),
        pytest.param([pod(inits=("istio-proxy", "init"), proxy="x")], [], ["✓"], id="native"),
    ],
)
def test_cni_plugin_and_init_containers(pods, daemonsets, want):
    assert levels(cni.judge(pods, daemonsets, application="app")) == want
