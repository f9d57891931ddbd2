"""What we write about callers, on a real API server with Istio's own definitions."""

import pytest

from istio_integrator.kube import cluster
from tests.functional import charm_parts, istiod_world
from tests.unit.charm.security.callers import NAME, policy


@pytest.fixture(scope="module")
def api(client):
    """An API server that serves Istio's kinds."""
    return istiod_world.install_definitions(client)


@pytest.fixture
def model(api, namespace):
    """A namespace with the Service of kfp-api."""
    api.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kfp-api", "namespace": namespace},
            "spec": {
                "selector": {NAME: "kfp-api"},
                "ports": [{"name": "http", "port": 8888, "targetPort": 18888}],
            },
        }
    )
    return namespace


def written(api, model):
    return charm_parts.listed(api, cluster.AUTHORIZATION_POLICY, model)


def stated(number=1):
    endpoint = {"ports": [8888], "methods": ["GET"], "paths": ["/apis/*"]}
    return [policy(f"client-{each}", "kfp-api", endpoint) for each in range(number)]


def test_policies_are_kept_as_they_are_written_and_not_written_again(api, model, monkeypatch):
    charm_parts.policies(api, model, *stated()).reconcile()
    first = written(api, model)
    assert len(first) == 2
    assert first["istio-integrator-closed"]["spec"] == {"action": "ALLOW"}
    charm_parts.policies(api, model, *stated()).reconcile()
    assert written(api, model) == first
    charm_parts.policies(api, model, mode="off").reconcile()
    assert written(api, model) == {}


def test_hundreds_of_callers_are_one_policy_that_is_taken(api, model):
    charm_parts.policies(api, model, *stated(500)).reconcile()
    (found,) = (one for one in written(api, model).values() if "selector" in one["spec"])
    (rule,) = found["spec"]["rules"]
    assert len(rule["from"][0]["source"]["principals"]) == 500


def test_istios_own_validation_has_nothing_against_any_form_of_rule(api, model, tmp_path):
    labels = {NAME: "kfp-api", "role": "viewer"}
    unit = {"target_app_name": None, "target_type": "unit", "target_selector_labels": labels}
    full = {
        "ports": [8888],
        "hosts": ["*.svc", "ml-pipeline.kubeflow.svc:8888", "a*"],
        "methods": ["GET", "POST"],
        "paths": ["/", "/apis/*", "*/end", "*"],
    }
    charm_parts.policies(
        api,
        model,
        policy("client", "kfp-api", full),
        policy("client", "kfp-api"),
        policy("prometheus", None, {"ports": [9090]}, **unit),
    ).reconcile()
    kept = [
        {key: each[key] for key in ("apiVersion", "kind", "spec")}
        | {"metadata": {"name": each["metadata"]["name"], "namespace": model}}
        for each in written(api, model).values()
    ]
    assert len(kept) == 3
    done = istiod_world.istioctl(tmp_path, kept, "validate", "-f")
    assert done.returncode == 0, done.stdout + done.stderr
