"""How the charm runs its webhook on a real API server."""

import ops
import pytest

from tests import waiting
from tests.functional import charm_runs
from tests.kubernetes_objects import made, pod

OPTIONS = {"excluded-pods": "a=b"}


@pytest.fixture
def api(connected, namespace):
    """The API server, with the pod of the charm's unit in the model."""
    unit = {
        "containers": [{"name": "lifecycle", "image": "registry.example/lifecycle:1"}],
        "imagePullSecrets": [{"name": "pull"}],
    }
    connected.create(pod(f"{charm_runs.APPLICATION}-0", namespace, **unit))
    yield connected
    charm_runs.run("remove", namespace, units=0)


def test_quota_that_refuses_the_webhooks_pods_is_named(api, namespace):
    api.create(made("v1", "ResourceQuota", "small", namespace, {"hard": {"pods": "0"}}))
    quota = "ResourceQuota", "small", namespace
    assert waiting.eventually(lambda: api.get(*quota)["status"].get("hard"))

    def blocked():
        said = charm_runs.run("update_status", namespace, **OPTIONS).unit_status
        return said if isinstance(said, ops.BlockedStatus) else None

    status = waiting.eventually(blocked)
    what = "admission: ResourceQuota small rejects pods"
    command = f"; run: juju run {charm_runs.APPLICATION}/leader diagnose; "
    assert status.message.startswith(f"{what}{command}")
    assert "pods=0" in status.message


def test_the_webhooks_pods_are_admitted_under_the_restricted_standard(api, namespace):
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.merge_patch(made("v1", "Namespace", namespace), {"metadata": {"labels": enforce}})
    charm_runs.run("start", namespace, **OPTIONS)
    live = api.get("Deployment", charm_runs.WEBHOOK, namespace)
    template = live["spec"]["template"]
    one = pod("one", namespace, template["metadata"], **template["spec"])
    created = api.create(one, dry_run=True)

    assert created["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert created["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert "app.kubernetes.io/name" not in created["metadata"]["labels"]
