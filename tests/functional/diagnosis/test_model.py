"""What `diagnose` says of a model, its namespace and its pods."""

import dataclasses
import datetime

import pytest

from istio_integrator import diagnosis
from istio_integrator.admission import admission
from istio_integrator.kube import cluster as charm_cluster
from tests.functional.diagnosis.world import APP, INJECTED, NODE, RUNNING
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


def test_labels_that_contradict_each_other(world):
    live = world.api.get(charm_cluster.NAMESPACE, world.model)
    world.api.merge_patch(live, {"metadata": {"labels": {"istio.io/rev": "canary"}}})
    found = world.says("namespace")[0]
    assert found.level.value == "✗"
    assert found.next == f"kubectl label ns {world.model} istio.io/rev-"


def test_plugin_that_is_not_ready_and_init_containers_that_it_cuts_off(world):
    world.mesh = dataclasses.replace(world.mesh, cni=True)
    inits = [{"name": "istio-validation", "image": "p"}, {"name": "fetch", "image": "i"}]
    world.pod("web", "main", "istio-proxy", annotations=INJECTED, spec={"initContainers": inits})
    labels = {"k8s-app": "istio-cni-node"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "cni", "image": "cni"}]},
    }
    node = f"{world.model}-node"
    world.create("Node", node, labels={"test": world.model}, status={"nodeInfo": NODE})
    template["spec"]["nodeSelector"] = {"test": world.model}
    world.create(
        "DaemonSet",
        "istio-cni-node",
        world.root,
        labels=labels,
        spec={"selector": {"matchLabels": labels}, "template": template},
    )
    # The plugin's pod is wanted there, and nobody runs it.
    place = (charm_cluster.DAEMON_SET, "istio-cni-node", world.root)
    assert eventually(lambda: world.api.get(*place)["status"].get("desiredNumberScheduled"))
    found = world.says("cni")
    assert [each.level.value for each in found] == ["✗", "!"]
    assert "not ready on 1 nodes" in found[0].seen
    assert f"Pod {world.model}/web" in found[1].seen
    world.kubectl("delete", "node", node)


def test_pod_without_a_sidecar_is_reported_by_the_workloads_own_words(world):
    world.pod("bare", "main")
    level, seen = world.worst("sidecars")
    assert level == "!"
    assert seen == f"no sidecar: {world.model}/bare: nothing would create it again"


def test_proxy_of_another_revision(world):
    old = {"sidecar.istio.io/status": '{"revision": "1-29"}'}
    world.pod("web", "main", "istio-proxy", annotations=old)
    level, seen = world.worst("old proxies")
    assert level == "!"
    assert f"{world.model}/web" in seen


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
