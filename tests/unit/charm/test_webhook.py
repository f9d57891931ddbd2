"""The model joins after the webhook works, and settings reach its servers by a mounted file."""

import pytest

from integrator_contract import names
from istio_integrator.admission import webhook
from tests.unit.charm import ingress_world
from tests.unit.charm.charm_world import told

NAME = "istio-integrator-admission"


@pytest.fixture
def fresh(fake, monkeypatch):
    """A model in which the charm has not run yet."""
    ingress_world.connect_without_gateway(fake, monkeypatch)
    return ingress_world.World(fake)


@pytest.fixture
def world(fresh):
    """A model with a webhook that the API server asks."""
    fresh.run()
    return fresh


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


def joined(fake):
    return fake.labels("kubeflow").get("istio-injection") == "enabled"


@pytest.mark.parametrize(
    ("is_ready", "answers", "joins"),
    [
        pytest.param(False, True, False, id="starting"),
        pytest.param(True, False, False, id="silent"),
        pytest.param(True, True, True, id="works"),
    ],
)
def test_model_joins_after_a_dry_run_pod_was_prepared(fake, fresh, is_ready, answers, joins):
    fake.webhook_is_ready, fake.webhook_answers = is_ready, answers

    out = fresh.run()

    assert joined(fake) is joins
    assert (out.unit_status.name == "active") is joins
    fake.webhook_answers = True
    fresh.get_ready(NAME)
    assert joined(fake)


def test_model_is_not_labelled_without_the_right_to_try_a_pod(fake, fresh):
    fake.forbidden.add(("create", "pods"))
    assert fresh.run().unit_status.name == "blocked"
    assert not joined(fake)


def test_model_that_another_team_labelled_is_not_held_up(fake, fresh):
    fake.labels("kubeflow")["istio-injection"] = "enabled"
    fake.webhook_answers = False

    out = fresh.run()

    assert told(fresh.ctx, out).joined


def test_member_stays_one_while_the_webhook_is_silent(fake, fresh):
    fresh.run()
    fake.webhook_answers = False
    fresh.run()
    assert joined(fake)
