"""The stand-in's objects on a real apiserver: accepted, changed by trust and scale, removed."""

import base64
import pathlib
import subprocess
import sys
import zipfile

import pytest

from testbed import kubernetes, loopback
from testbed.juju import client as juju_client
from testbed.juju.agent import api as agent_api
from testbed.kit import observer
from tests import waiting

ROOT = pathlib.Path(__file__).parents[2]
MODEL = "juju-objects"
METADATA = """
name: plain
containers: {workload: {resource: image}}
resources: {image: {type: oci-image, upstream-source: localhost/any}}
"""


@pytest.fixture
async def api(kubeconfig):
    async with kubernetes.Api.from_kubeconfig(kubeconfig) as client:
        yield client


@pytest.fixture
def juju(kubeconfig, tmp_path):
    folder, address = tmp_path / "juju", f"127.0.0.1:{loopback.free_port()}"
    argv = [
        sys.executable, "-m", "testbed.juju.controller",
        "--state", str(folder), "--address", address,
        "--kubeconfig", str(kubeconfig), "--charm-image", "localhost/charm",
    ]  # fmt: skip
    controller = juju_client.Controller(address, folder)

    def answers():
        return controller.command("models") == []

    with subprocess.Popen(argv, cwd=ROOT) as process:
        try:
            assert waiting.eventually(answers)
            yield juju_client.Juju(controller, MODEL)
        finally:
            process.terminate()


@pytest.fixture
def charm(tmp_path):
    packed = tmp_path / "plain.charm"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("metadata.yaml", METADATA)
    return packed


async def test_application_lives_and_leaves_nothing(juju, charm, api):
    async def replicas():
        found = await api.find("StatefulSet", "plain", MODEL)
        return found and found["spec"]["replicas"]

    async def is_scaled():
        return await replicas() == 2

    async def is_trusted():
        rules = (await api.get("ClusterRole", f"{MODEL}-plain")).get("rules")
        return rules == [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]

    juju.add_model()
    juju.deploy(charm)
    await observer.eventually(replicas, 30, "the application's StatefulSet")
    model = (await api.get("Namespace", MODEL))["metadata"]["labels"]
    assert model["model.juju.is/name"] == MODEL
    assert model["app.kubernetes.io/managed-by"] == "juju"
    assert (await api.get("Service", "plain", MODEL))["spec"]["ports"][0]["port"] == 65535

    juju.add_unit("plain")
    await observer.eventually(is_scaled, 30, "two units")
    juju.trust("plain")
    await observer.eventually(is_trusted, 30, "every right")

    created_by = {
        "app.juju.is/created-by": "plain",
        "app.kubernetes.io/managed-by": "juju",
        "model.juju.is/name": model["model.juju.is/name"],
        "model.juju.is/id": model["model.juju.is/id"],
    }
    for name, labels in (("labelled", created_by), ("other", {})):
        meta = {"name": name, "namespace": MODEL, "labels": labels}
        await api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})

    juju.remove_application("plain")
    juju.wait_gone("plain", 30)
    for kind, name in (
        ("StatefulSet", "plain"),
        ("Service", "plain"),
        ("ServiceAccount", "plain"),
    ):
        assert await api.find(kind, name, MODEL) is None
    assert await api.find("ClusterRoleBinding", f"{MODEL}-plain") is None
    assert await api.find("ConfigMap", "labelled", MODEL) is None
    assert await api.find("ConfigMap", "other", MODEL)

    juju.destroy_model()
    assert await api.find("Namespace", MODEL) is None
    assert await api.find("ClusterRole", f"{MODEL}-modeloperator") is None


async def test_what_a_forced_removal_leaves_goes_with_the_model(juju, charm, api):
    """Seen with Juju 4.0.15, which leaves its own objects as well as the charm's."""
    juju.model = "juju-forced"
    juju.add_model()
    juju.deploy(charm)

    async def replicas():
        found = await api.find("StatefulSet", "plain", "juju-forced")
        return found and found["spec"]["replicas"]

    async def is_empty():
        return await replicas() == 0

    await observer.eventually(replicas, 30, "the application's StatefulSet")
    juju.remove_application("plain", force=True)
    juju.wait_gone("plain", 30)
    await observer.eventually(is_empty, 30, "a StatefulSet without pods")
    for kind, name in (("Service", "plain"), ("Service", "plain-endpoints"), ("Role", "plain")):
        assert await api.find(kind, name, "juju-forced"), kind
    assert await api.find("ClusterRole", "juju-forced-plain")

    juju.destroy_model()
    assert await api.find("ClusterRole", "juju-forced-plain") is None
    assert await api.find("ClusterRoleBinding", "juju-forced-plain") is None


async def test_no_pod_is_introduced_while_juju_cannot_read_one_of_the_application(
    juju, charm, api, tmp_path
):
    """internal/provider/kubernetes/application/application.go, Units: with a held proxy first."""
    juju.model = "juju-units"
    juju.add_model()
    juju.deploy(charm)

    async def configuration():
        return await api.find("Secret", "plain-application-config", "juju-units")

    secret = await observer.eventually(configuration, 30, "the application's configuration")
    password = base64.b64decode(secret["data"]["JUJU_K8S_APPLICATION_PASSWORD"]).decode()
    agent = agent_api.Controller(
        juju._controller.address,
        (tmp_path / "juju" / "ca.crt").read_text(),
        {"model": "juju-units", "application": "plain", "password": password},
    )
    podinfo = {"name": "istio-podinfo", "mountPath": "/etc/istio/pod"}
    proxy = {"name": "istio-proxy", "image": "none", "volumeMounts": [podinfo]}
    labels = {"fieldRef": {"fieldPath": "metadata.labels"}, "path": "labels"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "by-hand",
            "namespace": "juju-units",
            "labels": {"app.kubernetes.io/name": "plain"},
        },
        "spec": {
            "containers": [proxy, {"name": "charm", "image": "none"}],
            "serviceAccountName": "plain",
            "volumes": [{"name": "istio-podinfo", "downwardAPI": {"items": [labels]}}],
        },
    }
    await api.create(pod)
    with pytest.raises(
        agent_api.ControllerError, match="finding filesystem info for istio-podinfo"
    ):
        agent.call("introduce", pod_name="plain-0", pod_uuid="1")

    await api.delete("Pod", "by-hand", "juju-units")
    pod["spec"]["containers"].reverse()
    await api.create({**pod, "metadata": {**pod["metadata"], "name": "in-order"}})
    assert agent.call("introduce", pod_name="plain-0", pod_uuid="1") == "plain/0"
    agent.close()
    juju.destroy_model(force=True)
