"""What the charm makes of each installation of docs/reference/istio-installations.md."""

from __future__ import annotations

import pytest
from ops import testing

from integrator_contract import names
from istio_integrator.istio import probe
from istio_integrator.kube import cluster
from tests import profiles
from tests.functional import charm_runs, installations_world
from tests.functional.discovery_world import discover

SHORT = ("default", "helm-revision", "aks")
"""Those that are tried at each change; the others are as long together as all else here."""
ROWS = [
    pytest.param(name, id=name, marks=() if name in SHORT else pytest.mark.long)
    for name in installations_world.ROWS
]


@pytest.fixture
def world(client, kubeconfig, tmp_path, monkeypatch):
    """The API server, to which the charm connects."""
    api = cluster.Cluster(client)
    monkeypatch.setattr(cluster, "connect", lambda: api)
    return installations_world.World(api, kubeconfig, tmp_path)


def mesh_labels(world, namespace):
    """The labels of a namespace by which it joins."""
    metadata = world.api.get(cluster.NAMESPACE, namespace)["metadata"]
    keys = (names.INJECTION, names.REVISION)
    return {key: metadata["labels"][key] for key in keys if key in metadata["labels"]}


def profile(model):
    """A user's namespace, as Kubeflow labels it."""
    labels = {names.PART_OF: names.PROFILE, names.INJECTION: "enabled"}
    metadata = {"name": f"{model}-alice", "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


@pytest.mark.parametrize("name", ROWS)
def test_installation_is_joined_as_its_row_says(world, namespace, name):
    row = installations_world.ROWS[name]
    options = row.get("options", {})
    with world.installed(row) as url:
        if "blocked" in row:
            out = charm_runs.run("start", namespace)
            assert isinstance(out.unit_status, testing.BlockedStatus)
            assert row["blocked"] in out.unit_status.message
            for option, value in options.items():
                hint = f"juju config istio-integrator {option}="
                assert hint in out.unit_status.message, value
            assert mesh_labels(world, namespace) == {}
        out = charm_runs.run("start", namespace, **options)
        begins = row["status"].replace(installations_world.URL, url)
        assert isinstance(out.unit_status, testing.ActiveStatus), out.unit_status
        assert out.unit_status.message.split(" · ")[0] == begins
        assert mesh_labels(world, namespace) == row["joins"]
        found = discover(
            world.api,
            namespace,
            **{key.replace("-", "_"): value for key, value in options.items()},
        ).mesh
        assert (found.alive, found.probed) == (True, True)
        assert {field: getattr(found, field) for field in row["finds"]} == row["finds"]
        if "profiles" in row:
            with world.there(profile(namespace)):
                out = charm_runs.run("update_status", namespace, **options)
            assert isinstance(out.unit_status, testing.BlockedStatus)
            # A command that is longer than what Juju shows is named by diagnose.
            diagnose = "juju run istio-integrator/leader diagnose"
            command = row["profiles"] if len(row["profiles"]) < len(diagnose) else diagnose
            assert f"run: {command}" in out.unit_status.message
        charm_runs.run("remove", namespace, units=0)
        assert mesh_labels(world, namespace) == {}


@pytest.mark.long
@pytest.mark.parametrize(("line", "native"), profiles.NATIVE.items())
def test_compatibility_profile_is_joined_with_its_native_decision(world, namespace, line, native):
    settings = ["profile=default", f"values.compatibilityVersion={line}"]
    with world.installed({"installs": [{"settings": settings}]}):
        out = charm_runs.run("start", namespace)
        assert isinstance(out.unit_status, testing.ActiveStatus), out.unit_status
        found = discover(world.api, namespace).mesh
        asks = probe.ask(world.api, namespace, {}, like=None, annotations=probe.NATIVE)
    # Without nodes every node is new enough for istiod.
    assert (found.alive, found.native_by_default, asks.native) == (True, native, True)
