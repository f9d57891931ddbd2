"""The webhook's servers stay as they are where a mounted file tells them what changed."""

import pytest

from integrator_contract import names
from istio_integrator.admission import webhook
from tests.unit.charm import ingress_world

NAME = "istio-integrator-admission"


@pytest.fixture
def world(fake, monkeypatch):
    """A model with a webhook that the API server asks."""
    ingress_world.connect_without_gateway(fake, monkeypatch)
    made = ingress_world.World(fake, admission="webhook")
    made.run()
    made.get_ready(NAME)
    return made


@pytest.fixture
def server(fake):
    """A pod of the webhook."""
    labels = webhook.pod_labels("kubeflow.istio-integrator")
    metadata = {"name": "server", "namespace": "kubeflow", "labels": labels}
    return fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}})


def template(world):
    (deployment,) = world.all("Deployment")
    return deployment["spec"]["template"]


def refreshed(fake):
    pod = fake.find("Pod", "server", "kubeflow")
    return pod["metadata"]["annotations"][names.REFRESH]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        pytest.param("log_level", "debug", id="log-level"),
        pytest.param("hold_application", False, id="hold-application"),
        pytest.param("excluded_outbound_ports", "3306", id="excluded-outbound-ports"),
    ],
)
def test_option_reaches_the_servers_without_their_replacement(fake, world, server, option, value):
    world.run()
    before = template(world), refreshed(fake)
    world.config[option] = value

    world.run()

    assert template(world) == before[0]
    assert refreshed(fake) != before[1]


def test_level_of_the_log_is_a_file_that_the_servers_follow(fake, world):
    world.config["log_level"] = "debug"
    world.run()

    (container,) = template(world)["spec"]["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    settings = fake.find("ConfigMap", NAME, "kubeflow")
    assert settings["data"]["log-level"] == "debug"
    assert f"--log-level-file={mounts['settings']}/log-level" in container["command"]


def test_pods_of_others_are_left_alone(fake, world, server):
    metadata = {"name": "theirs", "namespace": "kubeflow"}
    fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}})
    world.run()
    assert refreshed(fake)
    assert "annotations" not in fake.find("Pod", "theirs", "kubeflow")["metadata"]


def test_servers_mount_the_secret_that_has_their_certificates(fake, world):
    (secret,) = (each["secret"] for each in template(world)["spec"]["volumes"] if "secret" in each)
    found = fake.find("Secret", secret["secretName"], "kubeflow")
    assert {each["key"] for each in secret["items"]} <= {*found["data"]}
