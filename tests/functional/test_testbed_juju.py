"""The stand-in's objects on a real apiserver: accepted, changed by trust and scale, removed."""

import pathlib
import socket
import subprocess
import sys
import zipfile

import pytest
from lightkube import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import StatefulSet
from lightkube.resources.core_v1 import ConfigMap, Namespace, Service, ServiceAccount
from lightkube.resources.rbac_authorization_v1 import ClusterRole, ClusterRoleBinding

from testbed.juju import client as juju_client
from tests import waiting

ROOT = pathlib.Path(__file__).parents[2]
MODEL = "juju-objects"
METADATA = """
name: plain
containers: {workload: {resource: image}}
resources: {image: {type: oci-image, upstream-source: localhost/any}}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def find(client, kind, name, namespace=None):
    try:
        return client.get(kind, name, namespace=namespace)
    except ApiError as error:
        if error.status.code != 404:
            raise
        return None


@pytest.fixture
def juju(kubeconfig, tmp_path):
    folder, address = tmp_path / "juju", f"127.0.0.1:{free_port()}"
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


def test_application_lives_and_leaves_nothing(juju, charm, client):
    juju.add_model()
    juju.deploy(charm)
    assert waiting.eventually(lambda: find(client, StatefulSet, "plain", MODEL))
    namespace = client.get(Namespace, MODEL)
    assert namespace.metadata.labels["model.juju.is/name"] == MODEL
    assert namespace.metadata.labels["app.kubernetes.io/managed-by"] == "juju"
    assert client.get(Service, "plain", namespace=MODEL).spec.ports[0].port == 65535

    juju.add_unit("plain")
    assert waiting.eventually(
        lambda: client.get(StatefulSet, "plain", namespace=MODEL).spec.replicas == 2
    )

    juju.trust("plain")

    def is_trusted():
        rules = client.get(ClusterRole, f"{MODEL}-plain").rules or []
        return [(r.apiGroups, r.resources, r.verbs) for r in rules] == [(["*"], ["*"], ["*"])]

    assert waiting.eventually(is_trusted)

    model = namespace.metadata.labels
    created_by = {
        "app.juju.is/created-by": "plain",
        "app.kubernetes.io/managed-by": "juju",
        "model.juju.is/name": model["model.juju.is/name"],
        "model.juju.is/id": model["model.juju.is/id"],
    }
    for name, labels in (("labelled", created_by), ("other", {})):
        client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace=MODEL, labels=labels)))

    juju.remove_application("plain")
    juju.wait_gone("plain", 30)
    for kind, name in ((StatefulSet, "plain"), (Service, "plain"), (ServiceAccount, "plain")):
        assert find(client, kind, name, MODEL) is None
    assert find(client, ClusterRoleBinding, f"{MODEL}-plain") is None
    assert find(client, ConfigMap, "labelled", MODEL) is None
    assert find(client, ConfigMap, "other", MODEL)

    juju.destroy_model()
    assert find(client, Namespace, MODEL) is None
    assert find(client, ClusterRole, f"{MODEL}-modeloperator") is None


def test_namespace_that_is_there_already_is_not_taken(juju, namespace):
    juju.model = namespace
    with pytest.raises(juju_client.JujuError, match="already exists"):
        juju.add_model()
