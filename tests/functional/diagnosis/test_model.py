"""What `diagnose` says of a model, its namespace and its pods."""

import datetime

import pytest

from istio_integrator import diagnosis
from istio_integrator.admission import admission
from tests.functional.diagnosis.world import APP, INJECTED, RUNNING
from tests.waiting import eventually


def test_model_in_which_nothing_is_wrong(world, monkeypatch):
    # No kubelet runs the webhook's pods here.
    monkeypatch.setattr(admission.Admission, "_trial", lambda *_: admission.Trial())
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    spec = {"holderIdentity": f"{APP}/0", "renewTime": stamp, "leaseDurationSeconds": 15}
    world.create("Lease", f"{APP}-lifecycle", spec=spec)

    def well():
        # Where Istio's kinds are new, the API server answers 429 for a moment.
        report = diagnosis.diagnose(world.facts())
        return not any(each.level.value != "✓" for each in report.findings) and report

    report = eventually(well)
    assert report, diagnosis.diagnose(world.facts()).text()
    assert {"namespace", "sidecars", "admission", "rights"} <= {
        each.check for each in report.findings
    }


def test_pod_without_a_sidecar_is_reported_by_the_workloads_own_words(world):
    world.pod("bare", "main")
    level, seen = world.worst("sidecars")
    assert level == "!"
    assert seen == f"no sidecar: {world.model}/bare: nothing would create it again"


MARK = "istio-integrator.charmhub.io/"
ENDED = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:00Z"}}
NOT_PULLED = {"waiting": {"reason": "ImagePullBackOff"}}


@pytest.mark.parametrize(
    ("annotations", "states", "stopping", "level"),
    [
        pytest.param({}, {}, True, "✗", id="not-stopped"),
        pytest.param({}, {}, False, "✗", id="switched-off"),
        pytest.param({f"{MARK}proxy-shutdown": "disabled"}, {}, True, "!", id="told-not"),
        pytest.param(
            {f"{MARK}ignore-containers": "agent"},
            {"agent": RUNNING},
            True,
            "✗",
            id="ignored-one-runs",
        ),
        pytest.param({}, {"istio-proxy": NOT_PULLED}, True, "!", id="never-started"),
        pytest.param(
            {"inject.istio.io/templates": "grpc-agent"}, {}, True, "!", id="without-envoy"
        ),
    ],
)
def test_pod_that_is_not_complete_after_its_payload(world, annotations, states, stopping, level):
    states = {"main": ENDED, "agent": ENDED, "istio-proxy": RUNNING, **states}
    ids = {"image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    statuses = [
        {"name": name, "state": state, "containerID": f"c://{name}", **ids}
        for name, state in states.items()
    ]
    world.pod(
        "job",
        *states,
        labels={"security.istio.io/tlsMode": "istio"},
        annotations={**INJECTED, **annotations},
        spec={"restartPolicy": "Never"},
        status={
            "phase": "Pending" if NOT_PULLED in states.values() else "Running",
            "containerStatuses": statuses,
        },
    )
    world.options["proxy_shutdown"] = stopping
    found = world.says("finished pods")[0]
    assert found.level.value == level
    assert f"{world.model}/job is not complete" in found.seen
    assert ("proxy-shutdown=true" in found.next) == (not stopping)
