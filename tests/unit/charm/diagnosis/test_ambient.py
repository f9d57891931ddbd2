"""In ambient mode: are pods taken in, which options do nothing, and what needs a waypoint?"""

import pytest

from istio_integrator.config import config
from istio_integrator.diagnosis.checks import ambient

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
TAKEN = {"ambient.istio.io/redirection": "enabled"}


def pod(name="web", *, labels=None, annotations=None, status=READY, **spec):
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def judged(*pods, beyond=(), behind=(), **options):
    found = ambient.judge(pods, beyond, behind, options=config.Config(**options), application="me")
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
    taken = int(one["metadata"]["annotations"] == TAKEN)
    assert judged(one) == [f"✓ ztunnel has taken in {taken} pods of the model"]


def test_pod_that_no_ztunnel_has_is_named():
    assert judged(pod(), pod("b", annotations=TAKEN)) == ["! no ztunnel has taken in web"]


def test_options_that_do_nothing_are_named_where_they_are_chosen():
    said = judged(hold_application=False, job_sidecars="native")
    assert "✓ without effect on pods in ambient mode: hold-application, job-sidecars" in said


def test_what_needs_a_waypoint_is_named():
    assert judged(beyond=["app=kfp-api"])[1] == (
        "! what is said of requests to app=kfp-api is ignored"
    )


def test_services_behind_a_waypoint_are_named():
    assert judged(behind=["kfp-api (kubeflow/theirs)"])[1] == (
        "✓ who may call through a waypoint is up to its policies: kfp-api (kubeflow/theirs)"
    )
