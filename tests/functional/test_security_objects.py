"""Policies for callers and mutual TLS on a real API server with Istio's definitions."""

import json

import pytest
from lightkube import Client
from ops import testing

from tests import charm_access, waiting
from tests.api import Api, ApiError
from tests.functional import charm_runs, istiod_world, loopback_istiod
from tests.kubernetes_objects import made, pod, workload
from tests.unit.charm.security import members
from tests.unit.charm.security.callers import NAME, policy

PROXY = {"name": "istio-proxy", "image": "none", "args": ["proxy", "sidecar"]}


@pytest.fixture(scope="module")
def served(client, admin):
    istiod_world.install_definitions(client)
    return admin


@pytest.fixture
def api(served, client, namespace, monkeypatch):
    """A model with applications in the mesh, of which one has a webhook."""
    charm_access.connect(monkeypatch, client)
    for name, port, target in (("katib", 443, 8443), ("minio", 9000, 9000), ("kfp-api", 8888, 80)):
        labels = {NAME: name}
        proxied = {"initContainers": [PROXY]}
        entry = {"name": "http-web", "port": port, "targetPort": target}
        service = {"selector": labels, "ports": [entry]}
        served.create(workload("StatefulSet", name, namespace, labels, **proxied))
        served.create(pod(name, namespace, {"labels": labels}, **proxied))
        served.create(made("v1", "Service", name, namespace, service))
    hook = members.webhook(f"katib-{namespace}", "katib", namespace=namespace)
    served.create(hook)
    with loopback_istiod.unanswered(served, namespace, "Ignore"):
        yield served
    served.delete(hook)


def reconcile(namespace, *stated, **options):
    """Run the charm in a mesh, with what kfp-api says about its callers; its status comes back."""
    told = {"policies": json.dumps([{**one, "target_namespace": namespace} for one in stated])}
    related = testing.Relation("service-mesh", remote_app_name="kfp-api", remote_app_data=told)
    options = {"istiod-namespace": f"istio-{namespace}", **options}
    out = charm_runs.run("config_changed", namespace, relations=[related], **options)
    return out.unit_status.message


def test_shipped_roles_suffice_and_the_one_that_is_missing_is_named(
    api, namespace, untrusted, control_plane, monkeypatch
):
    with Client(config=untrusted) as client, Api(untrusted) as own:
        charm_access.connect(monkeypatch, client)
        reconcile(namespace, mtls="strict")
        assert len(api.list("PeerAuthentication", namespace)) == 2
        reconcile(namespace)
        assert api.list("PeerAuthentication", namespace) == []
        nothing = ("--type=merge", "--patch", '{"rules": []}')
        # Either of these roles lets it read what API servers call.
        for role in ("mtls", "authorization"):
            name = f"{namespace}-{charm_runs.APPLICATION}-{role}"
            control_plane.kubectl("patch", "clusterrole", name, *nothing)
        assert waiting.eventually(lambda: _is_refused(own))
        assert "customresourcedefinitions" in reconcile(namespace, mtls="strict")
        assert api.list("PeerAuthentication", namespace) == []
        # By default nothing of that is needed.
        assert "customresourcedefinitions" not in reconcile(namespace)


def _is_refused(api):
    try:
        api.list("CustomResourceDefinition")
    except ApiError as error:
        return error.code == 403
    return False


def written(api, namespace):
    found = api.list("AuthorizationPolicy", namespace)
    return {each["metadata"]["name"]: each for each in found}


def test_policy_of_hundreds_of_callers_is_kept_as_it_is_written_and_not_written_again(
    api, namespace
):
    endpoint = {"ports": [8888], "methods": ["GET"], "paths": ["/apis/*"]}
    stated = [policy(f"client-{number}", "kfp-api", endpoint) for number in range(500)]
    reconcile(namespace, *stated, authorization="closed")
    first = written(api, namespace)
    # The third one is for the webhook.
    assert len(first) == 3
    assert first["istio-integrator-closed"]["spec"] == {"action": "ALLOW"}
    specs = (each["spec"] for each in first.values() if "selector" in each["spec"])
    (rule,) = next(each for each in specs if "kfp-api" in str(each["selector"]))["rules"]
    assert len(rule["from"][0]["source"]["principals"]) == 500
    reconcile(namespace, *stated, authorization="closed")
    assert written(api, namespace) == first
    reconcile(namespace, authorization="off")
    assert written(api, namespace) == {}


def test_istios_own_validation_has_nothing_against_what_is_written(api, namespace, tmp_path):
    labels = {NAME: "kfp-api", "role": "viewer"}
    unit = {"target_app_name": None, "target_type": "unit", "target_selector_labels": labels}
    full = {
        "ports": [8888],
        "hosts": ["*.svc", "ml-pipeline.kubeflow.svc:8888", "a*"],
        "methods": ["GET", "POST"],
        "paths": ["/", "/apis/*", "*/end", "*"],
    }
    options = {"authorization": "closed", "mtls": "strict", "mtls-exceptions": "minio:9000, katib"}
    reconcile(
        namespace,
        policy("client", "kfp-api", full),
        policy("client", "kfp-api"),
        policy("prometheus", None, {"ports": [9090]}, **unit),
        **options,
    )
    kinds = ("AuthorizationPolicy", "PeerAuthentication")
    objects = [each for kind in kinds for each in api.list(kind, namespace)]
    assert len(objects) == 7
    done = istiod_world.istioctl(tmp_path, objects, "validate", "-f")
    assert done.returncode == 0, done.stdout + done.stderr
    # What it would say of a policy that istiod does not take.
    objects[-1]["spec"] = {"portLevelMtls": {"1": {"mode": "PERMISSIVE"}}}
    assert istiod_world.istioctl(tmp_path, objects, "validate", "-f").returncode != 0
