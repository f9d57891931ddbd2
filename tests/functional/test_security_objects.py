"""What we write about callers and mutual TLS, on a real API server with Istio's definitions."""

import lightkube
import pytest

from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import errors
from istio_integrator.situation import model
from tests import waiting
from tests.functional import charm_parts, istiod_world
from tests.kubernetes_objects import made, pod, workload
from tests.unit.charm.security import members
from tests.unit.charm.security.callers import NAME, policy

PEERS = charm_cluster.PEER_AUTHENTICATION
PROXY = {"name": "istio-proxy", "image": "none", "args": ["proxy", "sidecar"]}


@pytest.fixture(scope="module")
def served(client):
    return istiod_world.install_definitions(client)


@pytest.fixture
def api(served, namespace):
    """A model with applications in the mesh, of which one has a webhook."""
    for name, port, target in (("katib", 443, 8443), ("minio", 9000, 9000), ("kfp-api", 8888, 80)):
        labels = {NAME: name}
        proxied = {"initContainers": [PROXY]}
        entry = {"name": "http-web", "port": port, "targetPort": target}
        service = {"selector": labels, "ports": [entry]}
        served.create(workload("StatefulSet", name, namespace, labels, **proxied))
        served.create(pod(name, namespace, {"labels": labels}, **proxied))
        served.create(made("v1", "Service", name, namespace, service))
    hook = members.webhook(f"katib-{namespace}", "katib", namespace=namespace)
    hook["webhooks"][0] |= {
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
    }
    served.create(hook)
    yield served
    served.delete(hook)


def test_shipped_roles_suffice_and_the_one_that_is_missing_is_named(
    api, namespace, untrusted, control_plane
):
    with lightkube.Client(config=untrusted) as client:
        own = charm_cluster.Cluster(client)
        charm_parts.strict(own, namespace).reconcile()
        assert len(charm_parts.listed(api, PEERS, namespace)) == 2
        charm_parts.strict(own, namespace).remove()
        assert charm_parts.listed(api, PEERS, namespace) == {}
        nothing = ("--type=merge", "--patch", '{"rules": []}')
        # Either of these roles lets it read what API servers call.
        for role in ("mtls", "authorization"):
            name = f"{namespace}-{charm_parts.APP}-{role}"
            control_plane.kubectl("patch", "clusterrole", name, *nothing)
        assert waiting.eventually(lambda: _is_refused(own))
        with pytest.raises(errors.ForbiddenError, match="customresourcedefinitions"):
            charm_parts.strict(own, namespace).reconcile()
        assert charm_parts.listed(api, PEERS, namespace) == {}
        # By default nothing of that is needed.
        charm_parts.strict(own, namespace, mtls="inherit").reconcile()


def _is_refused(api):
    try:
        api.list(charm_cluster.CUSTOM_RESOURCE_DEFINITION)
    except errors.ForbiddenError:
        return True
    return False


def test_conversion_is_read_as_the_api_server_lists_it_and_no_schema(api, namespace):
    schema = {"openAPIV3Schema": {"type": "object"}}
    plural = f"things-{namespace}"
    obj = members.definition(f"{plural}.example.com", "katib")
    obj["spec"]["conversion"]["webhook"]["conversionReviewVersions"] = ["v1"]
    obj["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["namespace"] = namespace
    obj["spec"] |= {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": plural, "kind": "Thing" + namespace.replace("-", "")},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    made = api.create(obj)
    try:
        found = api.list(charm_cluster.CUSTOM_RESOURCE_DEFINITION)
    finally:
        api.delete(made)
    assert {key for each in found for key in each["spec"]} == {"conversion"}
    (ours,) = (each for each in found if each["metadata"]["name"] == obj["metadata"]["name"])
    assert ours["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["name"] == "katib"
    assert model.calls([ours], model=namespace) == [
        model.Call(f"CustomResourceDefinition {plural}.example.com", "katib", 443)
    ]


def written(api, namespace):
    return charm_parts.listed(api, charm_cluster.AUTHORIZATION_POLICY, namespace)


def test_policy_of_hundreds_of_callers_is_kept_as_it_is_written_and_not_written_again(
    api, namespace
):
    endpoint = {"ports": [8888], "methods": ["GET"], "paths": ["/apis/*"]}
    stated = [policy(f"client-{number}", "kfp-api", endpoint) for number in range(500)]
    charm_parts.policies(api, namespace, *stated).reconcile()
    first = written(api, namespace)
    # The third one is for the webhook.
    assert len(first) == 3
    assert first["istio-integrator-closed"]["spec"] == {"action": "ALLOW"}
    specs = (each["spec"] for each in first.values() if "selector" in each["spec"])
    (rule,) = next(each for each in specs if "kfp-api" in str(each["selector"]))["rules"]
    assert len(rule["from"][0]["source"]["principals"]) == 500
    charm_parts.policies(api, namespace, *stated).reconcile()
    assert written(api, namespace) == first
    charm_parts.policies(api, namespace, mode="off").reconcile()
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
    charm_parts.policies(
        api,
        namespace,
        policy("client", "kfp-api", full),
        policy("client", "kfp-api"),
        policy("prometheus", None, {"ports": [9090]}, **unit),
    ).reconcile()
    charm_parts.strict(api, namespace, mtls_exceptions="minio:9000, katib").reconcile()
    objects = [*written(api, namespace).values(), *api.list(PEERS, namespace)]
    assert len(objects) == 7
    done = istiod_world.istioctl(tmp_path, objects, "validate", "-f")
    assert done.returncode == 0, done.stdout + done.stderr
    # What it would say of a policy that istiod does not take.
    objects[-1]["spec"] = {"portLevelMtls": {"1": {"mode": "PERMISSIVE"}}}
    assert istiod_world.istioctl(tmp_path, objects, "validate", "-f").returncode != 0
