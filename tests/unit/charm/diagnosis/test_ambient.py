"""In ambient mode: are pods taken in, and what needs a waypoint?"""

import pytest

from istio_integrator.diagnosis.checks import ambient

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
TAKEN = {"ambient.istio.io/redirection": "enabled"}


def pod(name="web", *, labels=None, annotations=None, status=READY, **spec):
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def judged(*pods, beyond=()):
    found = ambient.judge(pods, beyond, application="me")
    return [f"{each.level.value} {each.seen}" for each in found]


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(pod(labels={"istio.io/dataplane-mode": "none"}), id="outside"),
        pytest.param(pod(annotations={"sidecar.istio.io/status": "{}"}), id="leftover"),
        pytest.param(pod(hostNetwork=True), id="host"),
        pytest.param(pod(status={}), id="not-ready"),
        pytest.param(pod(annotations=TAKEN), id="taken"),
    ],
)
def test_pod_that_ztunnel_has_or_need_not_have_is_fine(one):
    assert judged(one) == ["✓ ztunnel has taken in the pods of the model"]


def test_pod_that_no_ztunnel_has_is_named():
    assert judged(pod(), pod("b", annotations=TAKEN)) == ["! no ztunnel has taken in web"]


def test_what_needs_a_waypoint_is_named():
    assert judged(beyond=["app=kfp-api"])[1] == (
        "! what is said of requests to app=kfp-api is ignored"
    )
