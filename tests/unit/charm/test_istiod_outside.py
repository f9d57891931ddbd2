"""The charm at its events, with an istiod outside of the cluster."""

import dataclasses

import yaml
from ops import testing

from tests.unit.charm import istio_objects
from tests.unit.charm.charm_world import joins, state, told, workload


def test_relations_are_told_of_an_istiod_outside_the_cluster_what_is_known(ctx, fake):
    address = {"discoveryAddress": "198.51.100.7:15012"}
    istio_objects.install_remote(fake, proxy_config=address)
    pilot = testing.Relation("istio-pilot", remote_app_name="gateway")
    given = dataclasses.replace(state(), relations={pilot})

    out = ctx.run(ctx.on.config_changed(), given)

    data = yaml.safe_load(out.get_relation(pilot.id).local_app_data["data"])
    assert data == {"service-name": "198.51.100.7", "service-port": "15012"}
    for one in fake.remote.values():
        one["alive"] = False
    later = ctx.run(ctx.on.update_status(), out).get_relation(pilot.id).local_app_data
    assert yaml.safe_load(later["data"]) == data


def test_model_stays_joined_while_an_istiod_outside_the_cluster_is_away(ctx, fake, tmp_path):
    istio_objects.install_remote(fake, proxy_config={"statusPort": 15099})
    before = ctx.run(ctx.on.config_changed(), state(workload(files=tmp_path)))
    was = joins(ctx, before)
    assert told(ctx, before).status_port == 15099
    (istiod,) = fake.remote.values()
    istiod["alive"] = False

    out = ctx.run(ctx.on.update_status(), before)

    assert joins(ctx, out) == was
    assert told(ctx, out).status_port == 15099
    assert out.unit_status.name == "waiting"
    assert "new pods are refused: namespace.sidecar-injector" in out.unit_status.message
    istiod["alive"] = True
    assert ctx.run(ctx.on.update_status(), out).unit_status == before.unit_status
    fake.delete("MutatingWebhookConfiguration", "istio-sidecar-injector")
    assert told(ctx, ctx.run(ctx.on.update_status(), out)).status_port == 15099
