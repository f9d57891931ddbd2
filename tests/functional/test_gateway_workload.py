"""A gateway of our own, as the real istiod completes its pods, where pods must be restricted."""

import contextlib
import uuid

import pytest

from integrator_contract import names
from istio_integrator.ingress import own_gateway
from istio_integrator.kube import cluster, errors, manifests
from tests.functional import loopback_istiod

LEVEL = "pod-security.kubernetes.io/enforce"


@pytest.fixture(scope="module")
def api(client, kubeconfig, tmp_path_factory):
    """The API server, with an istiod that it asks."""
    api = cluster.Cluster(client)
    with loopback_istiod.serving(api, kubeconfig, tmp_path_factory.mktemp("istiod")):
        yield api


@pytest.fixture(params=["restricted", "baseline"])
def model(request, api):
    """A member of the mesh whose pods must be of that level."""
    name = f"edge-{uuid.uuid4().hex[:6]}"
    labels = {LEVEL: request.param, names.INJECTION: "enabled"}
    metadata = {"name": name, "labels": labels}
    created = api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    with contextlib.suppress(errors.ConflictError):
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        api.create({**account, "metadata": {"name": "default", "namespace": name}})
    yield name
    api.delete(created)


def deployment(model):
    context = own_gateway.Context(
        name="gateway",
        model=model,
        pod_labels={"istio": "gateway"},
        inject_labels={names.INJECT: "true"},
    )
    rendered = manifests.render(own_gateway.FOLDER, context)
    return {obj["kind"]: obj for obj in rendered}


def test_pod_of_our_gateway_is_completed_by_istiod_and_accepted_where_pods_are_restricted(
    api, model
):
    objects = deployment(model)
    account = objects["ServiceAccount"]
    account["metadata"]["namespace"] = model
    api.create(account)
    workload = objects["Deployment"]
    workload["metadata"]["namespace"] = model
    # The API server's defaults are part of what istiod gets to see.
    template = api.create(workload)["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**pod["metadata"], "name": "gateway-0", "namespace": model}
    created = api.create(pod)
    (proxy,) = created["spec"]["containers"]
    assert proxy["image"] == "registry.example/proxyv2:1.31.1"
    assert "router" in proxy["args"]
    assert proxy["imagePullPolicy"] == "IfNotPresent"
    security = proxy["securityContext"]
    assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"]) == (True, True)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert created["spec"].get("initContainers") is None
    assert created["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.parametrize("model", ["restricted"], indirect=True)
def test_pod_that_is_not_hardened_is_refused_there(api, model):
    metadata = {"name": "plain", "namespace": model, "labels": {names.INJECT: "false"}}
    spec = {"containers": [{"name": "main", "image": "none"}]}
    with pytest.raises(errors.ApiError, match="violates PodSecurity"):
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
