"""How the charm runs its webhook on a real API server."""

from __future__ import annotations

import lightkube.resources.core_v1
import ops
import pytest

from istio_integrator.admission import admission
from istio_integrator.kube import cluster
from tests import shown, waiting
from tests.functional import charm_parts
from tests.kubernetes_objects import made, pod

APPLICATION = charm_parts.APP


@pytest.fixture
def api(client, namespace):
    """The API server, with the pod of the charm's unit in the model."""
    api = cluster.Cluster(client)
    api.create(pod(f"{APPLICATION}-0", namespace, imagePullSecrets=[{"name": "pull"}]))
    yield api
    subject(api, namespace).remove()


def subject(api, model):
    scope = charm_parts.context(api, model, mesh=None, excluded_pods="a=b")
    return admission.Admission(scope, lambda: "registry.example/lifecycle:1")


def test_quota_that_refuses_the_webhooks_pods_is_named(api, namespace):
    quota = made("v1", "ResourceQuota", "small", namespace, {"hard": {"pods": "0"}})
    resource = lightkube.resources.core_v1.ResourceQuota
    api.client.create(resource.from_dict(quota))
    waiting.eventually(lambda: api.client.get(resource, "small", namespace=namespace).status.hard)
    subject(api, namespace).reconcile()

    def blocked():
        said = shown.statuses(subject(api, namespace).reconcile())
        return [each for each in said if isinstance(each, ops.BlockedStatus)]

    (status,) = waiting.eventually(blocked)
    what = "admission: ResourceQuota small rejects pods"
    command = f"; run: juju run {APPLICATION}/leader diagnose; "
    assert status.message.startswith(f"{what}{command}")
    assert "pods=0" in status.message


def test_the_webhooks_pods_are_admitted_under_the_restricted_standard(api, namespace):
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    found = api.get(cluster.NAMESPACE, namespace)
    api.merge_patch(found, {"metadata": {"labels": enforce}})
    subject(api, namespace).reconcile()
    live = api.get(cluster.DEPLOYMENT, "istio-integrator-admission", namespace)
    template = live["spec"]["template"]
    one = pod("one", namespace, template["metadata"], **template["spec"])
    created = api.create(one, dry_run=True)

    assert created["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert created["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert "app.kubernetes.io/name" not in created["metadata"]["labels"]
