"""Whether a model is to be in ambient mode, and whether the cluster has what that takes."""

import pytest

from istio_integrator.istio import ambient, meshconfig
from tests.unit.charm.ambient_objects import NODE_AGENT, SERVING, ZTUNNEL, daemon, istiod


@pytest.mark.parametrize(
    ("daemons", "deployment", "words"),
    [
        pytest.param([ZTUNNEL, NODE_AGENT], SERVING, "", id="all"),
        pytest.param([ZTUNNEL, NODE_AGENT], None, "", id="istiod-elsewhere"),
        pytest.param(
            [ZTUNNEL, NODE_AGENT],
            istiod({"name": "PILOT_ENABLE_AMBIENT", "valueFrom": {}}),
            "",
            id="not-known",
        ),
        pytest.param(
            [ZTUNNEL, NODE_AGENT],
            istiod({"name": "PILOT_ENABLE_AMBIENT", "value": "1"}),
            "",
            id="as-go-takes-it",
        ),
        pytest.param([NODE_AGENT], SERVING, "the cluster has no ztunnel", id="no-ztunnel"),
        pytest.param([ZTUNNEL], SERVING, "has no Istio's node agent istio-cni-node", id="no-cni"),
        pytest.param(
            [daemon("zt", {"app": "ztunnel"}, ready=0), NODE_AGENT],
            SERVING,
            "no pod of ztunnel is ready",
            id="none-ready",
        ),
        pytest.param(
            [daemon("zt", {"app": "ztunnel"}, wanted=0, ready=0), NODE_AGENT],
            SERVING,
            "",
            id="no-nodes",
        ),
        pytest.param(
            [ZTUNNEL, NODE_AGENT], istiod(), "istiod has no PILOT_ENABLE_AMBIENT=true", id="istiod"
        ),
        pytest.param([{"kind": "DaemonSet"}, ZTUNNEL, NODE_AGENT], SERVING, "", id="garbled"),
    ],
)
def test_what_is_missing_is_named(daemons, deployment, words):
    known = None if deployment is None else meshconfig.environment(deployment)
    found = ambient.judge(daemons, known)
    assert words in found
    assert bool(found) == bool(words)
