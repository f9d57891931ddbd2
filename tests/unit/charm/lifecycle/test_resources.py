"""The options `cpu` and `memory`, and what of them the unit's own pods get."""

import ops
import pytest
from ops import testing

import charm
from integrator_contract import names
from istio_integrator.config import config
from istio_integrator.lifecycle import resources
from tests.unit.charm import charm_world, fake_cluster
from tests.unit.charm.charm_world import state, status

APP = "istio-integrator"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        pytest.param({}, {}, id="nothing asked for"),
        pytest.param({"cpu": "  "}, {}, id="blank"),
        pytest.param(
            {"cpu": "2"},
            {
                "lifecycle": {"limits": {"cpu": "2"}, "requests": {"cpu": "250m"}},
                "charm": {"requests": {"cpu": "250m"}},
            },
            id="much CPU",
        ),
        pytest.param(
            {"cpu": "0.1"},
            {
                "lifecycle": {"limits": {"cpu": "100m"}, "requests": {"cpu": "100m"}},
                "charm": {"requests": {"cpu": "100m"}},
            },
            id="little CPU",
        ),
        pytest.param(
            {"memory": "1024Mi"},
            {"lifecycle": {"limits": {"memory": "1Gi"}, "requests": {"memory": "200Mi"}}},
            id="much memory: that of hooks is Juju's",
        ),
        pytest.param(
            {"cpu": "50m", "memory": "128Mi"},
            {
                "lifecycle": {
                    "limits": {"cpu": "50m", "memory": "128Mi"},
                    "requests": {"cpu": "50m", "memory": "128Mi"},
                },
                "charm": {"requests": {"cpu": "50m"}},
            },
            id="the least of both",
        ),
    ],
)
def test_requests_are_what_may_be_used_up_to_what_observability_charms_ask_for(options, wanted):
    assert resources.requirements(config.Config(**options)) == wanted


@pytest.fixture
def ctx(fake, monkeypatch, tmp_path) -> testing.Context[charm.IstioIntegrator]:
    charm_world.connect(fake, monkeypatch)
    fake_cluster.install_istio(fake)
    fake.application()
    containers = [{"name": "charm", "image": "juju"}, {"name": "lifecycle", "image": "ours"}]
    stateful_set(fake)["spec"] = {
        "template": {
            "metadata": {"labels": {"app.kubernetes.io/name": APP}},
            "spec": {"containers": containers},
        }
    }
    return testing.Context(charm.IstioIntegrator, charm_root=charm_world.root(tmp_path))


def stateful_set(fake) -> dict:
    found = fake.find("StatefulSet", APP, "kubeflow")
    assert found
    return found


def limits(fake) -> dict[str, dict]:
    containers = stateful_set(fake)["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["resources"] for each in containers if "resources" in each}


def of_stateful_sets(fake) -> list[str]:
    return [each for each in fake.requests if each.endswith(APP) and "statefulsets" in each]


def test_without_options_it_is_left_alone(ctx, fake):
    ctx.run(ctx.on.start(), state())
    assert of_stateful_sets(fake) == [f"get statefulsets kubeflow {APP}"]


def test_options_are_applied_once(ctx, fake):
    out = ctx.run(ctx.on.config_changed(), state(cpu="500m", memory="1Gi"))
    wanted = resources.requirements(config.Config(cpu="500m", memory="1Gi"))
    assert limits(fake) == wanted
    said = stateful_set(fake)["metadata"]["annotations"][names.RESOURCES]
    assert said == "cpu=500m,memory=1Gi"
    assert isinstance(out.unit_status, ops.ActiveStatus)
    fake.writes.clear()
    ctx.run(ctx.on.config_changed(), out)
    assert fake.writes == []


def test_it_is_the_last_that_a_hook_writes(ctx, fake):
    ctx.run(ctx.on.config_changed(), state(cpu="500m"))
    assert fake.writes[-1] == f"patch statefulsets {APP}"
    assert len(fake.writes) > 1


def test_what_somebody_took_away_is_applied_again(ctx, fake):
    given = state(cpu="500m")
    ctx.run(ctx.on.config_changed(), given)
    del stateful_set(fake)["spec"]["template"]["spec"]["containers"][0]["resources"]
    ctx.run(ctx.on.config_changed(), given)
    assert set(limits(fake)) == {"lifecycle", "charm"}


def test_options_that_are_set_later_are_applied_though_there_was_nothing_before(ctx, fake):
    out = ctx.run(ctx.on.start(), state())
    out = ctx.run(ctx.on.config_changed(), out)
    ctx.run(ctx.on.config_changed(), state(memory="256Mi"))
    assert limits(fake)["lifecycle"]["limits"] == {"memory": "256Mi"}


def test_follower_applies_nothing(ctx, fake):
    ctx.run(ctx.on.config_changed(), state(leader=False, cpu="500m"))
    assert of_stateful_sets(fake) == []


def test_pods_that_would_be_refused_are_not_asked_for(ctx, fake):
    fake.refused.add(f"{APP}-x7k2p")
    said = status(ctx, state(cpu="500m"))
    assert isinstance(said, ops.BlockedStatus)
    assert said.message.startswith("cpu=500m: a pod with this value is rejected: ")
    assert limits(fake) == {}


def test_other_trouble_with_the_api_server_is_told_as_such(ctx, fake):
    fake.broken["patch", "statefulsets"] = 500
    said = status(ctx, state(cpu="500m"))
    assert said == ops.WaitingStatus("waiting for the Kubernetes API: 500: the server says no")


def test_constraints_that_say_another_thing_are_named(ctx, fake):
    fake.broken["patch", "statefulsets"] = 409
    assert status(ctx, state(cpu="500m")) == ops.BlockedStatus(
        "cpu=500m: constraints set it too; run: juju config istio-integrator cpu= memory=; "
        "or clear the constraints"
    )


def test_right_that_is_missing_is_named(ctx, fake):
    fake.forbidden.add(("patch", "statefulsets"))
    said = status(ctx, state(cpu="500m"))
    assert isinstance(said, ops.BlockedStatus)
    assert "missing permission: patch statefulsets" in said.message


def test_wrong_value_changes_nothing_and_is_named_with_what_would_be_right(ctx, fake):
    said = status(ctx, state(cpu="1m", memory="lots"))
    assert said == ops.BlockedStatus(
        "cpu='1m': write it such as 500m or 2, from 50m to 64; "
        "memory='lots': write it such as 512Mi or 1Gi, from 128Mi to 64Gi"
    )
    assert fake.writes == []
