"""How the charm runs its webhook on a real API server."""

from __future__ import annotations

import time

import lightkube
import lightkube.resources.core_v1
import lightkube.types
import ops
import pytest

from integrator_contract import names
from istio_integrator.admission import admission, webhook
from istio_integrator.kube import cluster, manifests, owners
from tests import shown, waiting
from tests.functional import charm_parts

MODEL = "kubeflow"
APPLICATION = charm_parts.APP


@pytest.fixture(scope="module")
def api(client) -> cluster.Cluster:
    return cluster.Cluster(client)


@pytest.fixture
def model(api):
    metadata = {"name": MODEL}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    if api.get(cluster.NAMESPACE, MODEL) is None:
        api.create(namespace)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{APPLICATION}-0", "namespace": MODEL},
        "spec": {
            "containers": [{"name": "charm", "image": "charm"}],
            "imagePullSecrets": [{"name": "pull"}],
        },
    }
    if api.get(cluster.POD, f"{APPLICATION}-0", MODEL) is None:
        api.create(pod)
    yield
    subject(api).remove()
    left = [
        cluster.reference(obj)
        for folder in (
            webhook.WORKLOAD_FOLDER,
            webhook.CONFIGURATION_FOLDER,
            webhook.CERTIFICATES_FOLDER,
        )
        for kind in manifests.kinds(folder)
        for obj in api.list(kind, labels={names.COMPONENT: folder})
        if "deletionTimestamp" not in obj["metadata"]
    ]
    assert left == []


def subject(api):
    scope = charm_parts.context(api, MODEL, mesh=None, excluded_pods="a=b")
    return admission.Admission(scope, lambda: "registry.example/lifecycle:1")


def make_ready(api):
    """Say what a kubelet would of the webhook's pods, and wait until that is known."""
    name = owners.object_name(APPLICATION, "admission")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for _ in range(200):
        labels = {names.COMPONENT: webhook.WORKLOAD_FOLDER}
        for pod in api.list(cluster.POD, MODEL, labels):
            if "deletionTimestamp" not in pod["metadata"]:
                api.client.patch(
                    lightkube.resources.core_v1.PodStatus,
                    pod["metadata"]["name"],
                    {"status": {"phase": "Running", "conditions": [ready]}},
                    namespace=MODEL,
                    patch_type=lightkube.types.PatchType.MERGE,
                )
        live = api.get(cluster.DEPLOYMENT, name, MODEL)
        if cluster.at(live, "status").get("readyReplicas") == 2:
            return live
        time.sleep(0.05)
    raise AssertionError(live["status"])


@pytest.mark.usefixtures("model")
def test_the_webhook_is_asked_only_when_it_is_ready_and_goes_first(api):
    choice = subject(api)
    choice.reconcile()
    deployment = make_ready(api)
    said = shown.statuses(choice.reconcile())

    configurations = api.list(cluster.MUTATING_WEBHOOK)
    assert len(configurations) == 1
    reference = configurations[0]["webhooks"][0]["clientConfig"]["service"]
    assert (reference["name"], reference["namespace"]) == (
        "istio-integrator-admission",
        MODEL,
    )
    spec = deployment["spec"]["template"]["spec"]
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["containers"][0]["image"] == "registry.example/lifecycle:1"
    # No server is behind the Service here, so nothing may be claimed.
    assert [type(status) for status in said] == [ops.WaitingStatus]


@pytest.mark.usefixtures("model")
def test_quota_that_refuses_the_webhooks_pods_is_named(api):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": MODEL},
        "spec": {"hard": {"pods": "0"}},
    }
    resource = lightkube.resources.core_v1.ResourceQuota
    api.client.create(resource.from_dict(quota))
    try:
        waiting.eventually(lambda: api.client.get(resource, "small", namespace=MODEL).status.hard)
        subject(api).reconcile()

        def blocked():
            said = shown.statuses(subject(api).reconcile())
            return [each for each in said if isinstance(each, ops.BlockedStatus)]

        (status,) = waiting.eventually(blocked)
    finally:
        api.client.delete(resource, "small", namespace=MODEL)

    what = "admission: ResourceQuota small rejects pods"
    command = f"; run: juju run {APPLICATION}/leader diagnose; "
    assert status.message.startswith(f"{what}{command}")
    assert "pods=0" in status.message


@pytest.mark.usefixtures("model")
def test_the_webhooks_pods_are_admitted_under_the_restricted_standard(api):
    namespace = api.get(cluster.NAMESPACE, MODEL)
    enforce = "pod-security.kubernetes.io/enforce"
    api.merge_patch(namespace, {"metadata": {"labels": {enforce: "restricted"}}})
    try:
        subject(api).reconcile()
        live = api.get(cluster.DEPLOYMENT, "istio-integrator-admission", MODEL)
        template = live["spec"]["template"]
        metadata = {"name": "one", "namespace": MODEL, **template["metadata"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        created = api.create(pod, dry_run=True)
    finally:
        api.merge_patch(namespace, {"metadata": {"labels": {enforce: None}}})

    assert created["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert "app.kubernetes.io/name" not in created["metadata"]["labels"]
