"""Strict mutual TLS on a real API server, with the shipped roles, and istioctl's judgement."""

import lightkube
import pytest

from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import errors
from istio_integrator.situation import model
from tests import waiting
from tests.functional import charm_parts, istiod_world
from tests.unit.charm.security import members


@pytest.fixture(scope="module")
def served(client):
    return istiod_world.install_definitions(client)


@pytest.fixture
def api(served, namespace):
    """A model with a webhook, a store and a web application in the mesh."""
    accounts = charm_cluster.kind("v1", "ServiceAccount")
    assert waiting.eventually(lambda: served.get(accounts, "default", namespace))
    for name in ("katib", "minio"):
        served.create(placed(members.stateful_set(name, image()), namespace, replicas=0))
        served.create(placed(members.pod(name, labels=marks(name)), namespace))
    served.create(placed(members.service("katib", 443, 8443), namespace))
    served.create(placed(members.service("minio", 9000), namespace))
    hook = members.webhook(f"katib-{namespace}", "katib", namespace=namespace)
    hook["webhooks"][0] |= {
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
    }
    served.create(hook)
    yield served
    served.delete(hook)


def image():
    return {"name": "web", "image": "none", "ports": [{"containerPort": 9001, "name": "web"}]}


def marks(name):
    return {"app.kubernetes.io/name": name}


def placed(obj, namespace, replicas=None):
    """Have an object of the unit tests be one that a real API server takes."""
    obj["metadata"]["namespace"] = namespace
    obj.pop("status", None)
    spec = obj["spec"]
    if replicas is not None:
        spec |= {"replicas": replicas, "serviceName": obj["metadata"]["name"]}
    pod = spec.get("template", {}).get("spec", spec)
    for kind in {"containers", "initContainers"} & pod.keys():
        pod[kind] = [{"image": "none", **each} for each in pod[kind]]
    return obj


def test_shipped_roles_suffice_and_the_one_that_is_missing_is_named(
    api, namespace, untrusted, control_plane
):
    with lightkube.Client(config=untrusted) as client:
        own = charm_cluster.Cluster(client)
        charm_parts.strict(own, namespace).reconcile()
        assert len(charm_parts.listed(api, charm_cluster.PEER_AUTHENTICATION, namespace)) == 2
        charm_parts.strict(own, namespace).remove()
        assert charm_parts.listed(api, charm_cluster.PEER_AUTHENTICATION, namespace) == {}
        nothing = ("--type=merge", "--patch", '{"rules": []}')
        # Either of these roles lets it read what API servers call.
        for role in ("mtls", "authorization"):
            name = f"{namespace}-{charm_parts.APP}-{role}"
            control_plane.kubectl("patch", "clusterrole", name, *nothing)
        assert waiting.eventually(lambda: _is_refused(own))
        with pytest.raises(errors.ForbiddenError, match="customresourcedefinitions"):
            charm_parts.strict(own, namespace).reconcile()
        assert charm_parts.listed(api, charm_cluster.PEER_AUTHENTICATION, namespace) == {}
        # By default nothing of that is needed.
        charm_parts.strict(own, namespace, mtls="inherit").reconcile()


def _is_refused(api):
    try:
        api.list(charm_cluster.CUSTOM_RESOURCE_DEFINITION)
    except errors.ForbiddenError:
        return True
    return False


def test_istioctl_has_nothing_to_say_about_ours(api, namespace, tmp_path):
    charm_parts.strict(api, namespace, mtls_exceptions="minio:9000, katib").reconcile()
    objects = api.list(charm_cluster.PEER_AUTHENTICATION, namespace)
    assert len(objects) == 3
    done = istiod_world.istioctl(tmp_path, objects, "validate", "-f")
    assert done.returncode == 0, done.stdout + done.stderr
    # What it would say of a policy that istiod does not take.
    objects[0]["spec"] = {"portLevelMtls": {"1": {"mode": "PERMISSIVE"}}}
    assert istiod_world.istioctl(tmp_path, objects, "validate", "-f").returncode != 0


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
