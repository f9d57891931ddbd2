"""The charm's own gateway workload is replaced with the others when its proxies are old."""

import json

import pytest
from sidecar_lifecycle.decide import eligible
from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.convergence import cluster as hands

from integrator_contract import names
from tests.unit.workload import pods, scripted

MODEL = "kubeflow"
TIED = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "app", "uid": "s"}
OWNED = {**TIED, "name": "x", "uid": "u", "controller": True}


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        pytest.param(names.owner(MODEL, "app"), "", id="ours"),
        pytest.param(names.owner(MODEL, "other"), "OwnedFurtherUp", id="of another integrator"),
        pytest.param(None, "OwnedFurtherUp", id="of somebody"),
    ],
)
async def test_application_does_not_manage_the_workload_that_is_tied_to_it(owner, reason):
    labels = {names.OWNER: owner} if owner else {}
    metadata = {"name": "x", "uid": "u", "labels": labels, "ownerReferences": [TIED]}
    server = scripted.Scripted()
    server.present["statefulsets"] = [json.dumps({"metadata": metadata}).encode()]
    settings = options.Settings(model=MODEL, application="app", unit="app/0")
    owners = await hands.Cluster(server, options.Live(settings)).owners([])
    pod = pods.pod(policy="Always", ownerReferences=[OWNED])
    assert eligible.ownership(pod, False, owners.lookup).reason == reason
