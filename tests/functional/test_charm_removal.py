"""The whole charm on a real API server: what it writes, and leaves behind: nothing."""

import json
import os
import pathlib
import runpy
import subprocess
import uuid
from typing import Any
from unittest import mock

import pytest

from integrator_contract import names
from tests import charm_access, waiting
from tests.functional import charm_runs
from tests.kubernetes_objects import made, namespace_of

ROOT = pathlib.Path(__file__).parents[2]
COMMANDS = runpy.run_path(str(ROOT / "docs/commands.py"))


@pytest.fixture
def api(connected):
    return connected


def everything(api) -> set[str]:
    """Every object that counts, without what the API server and controllers write."""
    found: set[str] = set()
    for kind in charm_runs.kinds(api):
        for obj in api.list(kind):
            metadata = {
                key: value
                for key, value in obj["metadata"].items()
                if key not in ("resourceVersion", "generation", "managedFields")
            }
            rest = {key: value for key, value in obj.items() if key not in ("metadata", "status")}
            found.add(json.dumps({**rest, "metadata": metadata}, sort_keys=True))
    return found


def test_charm_in_a_steady_state_writes_nothing(api, client, namespace, monkeypatch):
    options: dict[str, Any] = {"excluded-pods": "a=b"}
    spied = mock.Mock(wraps=client)
    charm_access.connect(monkeypatch, spied)

    def written():
        verbs = (spied.create, spied.patch, spied.delete)
        calls = [each for verb in verbs for each in verb.mock_calls]
        return [each for each in calls if not each.kwargs.get("dry_run")]

    charm_runs.deploy(api, namespace)
    # Steady is what it is when the servers have come and know what they serve.
    charm_runs.serve(api, "start", namespace, **options)
    charm_runs.run("update_status", namespace, **options)
    assert written()
    spied.reset_mock()
    charm_runs.run("update_status", namespace, **options)
    assert spied.mock_calls
    assert written() == []
    charm_runs.run("remove", namespace, units=0)


def _settled(api) -> bool:
    """Tell whether all namespaces of earlier tests, and their objects, have been deleted."""
    namespaces = api.list("Namespace")
    if any("deletionTimestamp" in namespace["metadata"] for namespace in namespaces):
        return False
    uids = {namespace["metadata"]["uid"] for namespace in namespaces}
    return all(
        owner["uid"] in uids
        for kind in charm_runs.kinds(api)
        for obj in api.list(kind)
        for owner in obj["metadata"].get("ownerReferences", ())
        if owner["kind"] == "Namespace"
    )


COLLECTED = 120
"""Seconds until ReplicaSets of a deleted Deployment are gone: Kubernetes' garbage collector stands
still while it learns of kinds that other tests install or delete."""


def test_deleted_model_takes_everything_of_ours_along(api):
    """Juju's ClusterRole owns cluster-scoped objects, and the namespace owns the ClusterRole."""
    model = f"doomed-{uuid.uuid4().hex[:6]}"
    assert waiting.eventually(lambda: _settled(api), COLLECTED), (
        "other tests' namespaces do not go away"
    )
    before = everything(api)
    api.create(namespace_of(model))
    charm_runs.deploy(api, model)
    charm_runs.serve(api, "start", model, **{"pod-labels": "{team: data}"})
    kinds = {each["kind"] for each in charm_runs.owned(api, model)}
    assert "MutatingWebhookConfiguration" in kinds
    api.delete(namespace_of(model))
    is_restored = waiting.eventually(lambda: everything(api) == before, COLLECTED)
    assert is_restored, everything(api) ^ before


def test_commands_of_the_page_remove_what_a_forced_removal_left(api, namespace, control_plane):
    """docs/how-to/clean-up.md: Juju has run no hook, and left its own objects."""
    assert waiting.eventually(lambda: api.get("ConfigMap", "kube-root-ca.crt", namespace))
    profile = f"{namespace}-alice"
    api.create(namespace_of(profile, **{names.PART_OF: names.PROFILE}))
    untouched = marks(api, namespace), marks(api, profile)
    charm_runs.deploy(api, namespace)
    of_juju = {names.MANAGED_BY: "juju", names.NAME: charm_runs.APPLICATION}
    settings = f"{charm_runs.APPLICATION}-application-config"
    api.create(made("v1", "Secret", settings, namespace, metadata={"labels": of_juju}))
    charm_runs.serve(api, "start", namespace, **{"pod-labels": "{team: data}"})
    assert charm_runs.owned(api, namespace)
    assert marks(api, profile) != untouched[1]
    objects, labels, applications = (
        block.text
        for block in COMMANDS["blocks"](ROOT)
        if "test_commands_of_the_page_remove_what_a_forced_removal_left" in block.what
    )

    def run(block):
        environment = {**os.environ, **control_plane.environment}
        commands = f"set -eo pipefail\n{block.replace('kubeflow', namespace)}"
        subprocess.run(["bash", "-c", commands], env=environment, check=True)

    run(objects)
    assert charm_runs.owned(api, namespace) == []
    run(labels)
    assert (marks(api, namespace), marks(api, profile)) == untouched
    run(applications)
    assert api.list("StatefulSet", namespace) == []
    assert api.get("Secret", settings, namespace) is None
    assert api.get("ClusterRole", f"{namespace}-istio-integrator") is None
    api.delete(namespace_of(profile))


def marks(api, namespace) -> tuple[Any, Any]:
    """Labels and annotations of a namespace."""
    metadata = api.get("Namespace", namespace)["metadata"]
    return metadata.get("labels"), metadata.get("annotations")
