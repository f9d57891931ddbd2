"""The charm in a model in ambient mode: what it does there, what it leaves, and what it says."""

import dataclasses
import json

import pytest
from ops import testing

from tests.unit.charm import fake_cluster
from tests.unit.charm.ambient_objects import install_ambient
from tests.unit.charm.charm_world import state, status, told

AMBIENT = {"istio.io/dataplane-mode": "ambient"}


@pytest.fixture
def world(fake):
    """A cluster with an Istio that has ambient mode, too."""
    fake_cluster.install_istio(fake)
    install_ambient(fake)
    return fake


def test_model_is_in_ambient_mode_before_what_prepared_its_sidecars_goes(ctx, world):
    status(ctx, state())
    world.writes.clear()
    status(ctx, state(mesh_mode="ambient"))
    joined = world.writes.index("patch namespaces kubeflow")
    gone = next(n for n, each in enumerate(world.writes) if "mutatingwebhookconf" in each)
    assert joined < gone


def test_sidecars_are_prepared_before_the_model_is_back(ctx, world):
    status(ctx, state(mesh_mode="ambient"))
    world.writes.clear()
    status(ctx, state(mesh_mode="sidecar"))
    joined = world.writes.index("patch namespaces kubeflow")
    there = next(n for n, each in enumerate(world.writes) if "mutatingwebhookconf" in each)
    assert there < joined


def test_workload_is_told_and_still_stops_proxies(ctx, world):
    out = ctx.run(ctx.on.config_changed(), state(mesh_mode="ambient"))
    assert told(ctx, out).data_plane == "ambient"
    assert told(ctx, out).restart_pods == "auto"
    assert told(ctx, out).proxy_shutdown


def test_applications_are_told_the_label_of_ambient_mode_where_pods_are_selected(ctx, world):
    relation = testing.Relation("service-mesh", remote_app_name="kfp-api")
    given = state(mesh_mode="ambient", included_pods="a=b")
    out = ctx.run(
        ctx.on.relation_changed(relation),
        dataclasses.replace(given, relations={relation}),
    )
    bag = out.get_relation(relation.id).local_app_data
    assert {key: json.loads(value) for key, value in bag.items()} == {
        "labels": AMBIENT,
        "mesh_type": "istio",
    }
