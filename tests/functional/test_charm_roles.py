"""The charm without trust, with exactly the roles that are shipped."""

import time
from collections.abc import Iterator

import lightkube
import pytest
import yaml
from ops import testing

import cluster as charm_cluster
import manifests
import webhook
from tests.functional import charm_runs


@pytest.fixture
def restricted(untrusted, monkeypatch) -> Iterator[None]:
    """Connect the charm as its ServiceAccount, which has the shipped roles in the namespace."""
    with lightkube.Client(config=untrusted) as client:
        made = charm_cluster.Cluster(client)
        monkeypatch.setattr(charm_cluster, "connect", lambda: made)
        yield


@pytest.fixture
def own(client, namespace) -> manifests.Manifests:
    api = charm_cluster.Cluster(client)
    return manifests.Manifests(api, model=namespace, application="istio-integrator")


def test_shipped_roles_suffice_for_the_policy(restricted, own, namespace):
    out = charm_runs.run("start", namespace)
    assert out.unit_status == testing.WaitingStatus(
        "waiting for istiod: the cluster has no sidecar injector"
    )
    assert "MutatingAdmissionPolicy" in {obj["kind"] for obj in own.owned()}
    charm_runs.run("remove", namespace, units=0)
    assert own.owned() == []


def test_shipped_roles_suffice_for_the_webhook(restricted, own, namespace, client):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "istio-integrator-0", "namespace": namespace},
        "spec": {
            "serviceAccountName": "istio-integrator",
            "containers": [{"name": "lifecycle", "image": "workload:1"}],
        },
    }
    charm_cluster.Cluster(client).create(pod)
    out = charm_runs.run("start", namespace, admission="webhook")
    assert isinstance(out.unit_status, testing.WaitingStatus)
    kinds = {obj["kind"] for obj in own.owned()}
    assert {"Secret", "Deployment", "Service", "PodDisruptionBudget"} <= kinds

    def servers():
        labels = {manifests.COMPONENT: webhook.WORKLOAD_FOLDER}
        return charm_cluster.Cluster(client).list(charm_cluster.POD, namespace, labels)

    for _ in range(100):
        if len(servers()) == 2:
            break
        time.sleep(0.1)
    charm_runs.run("config_changed", namespace, admission="webhook")
    annotated = [webhook.REFRESH_ANNOTATION in one["metadata"]["annotations"] for one in servers()]
    assert annotated == [True, True]
    charm_runs.run("remove", namespace, units=0)
    assert own.owned() == []


def test_shipped_roles_suffice_to_join_and_leave(restricted, namespace, client):
    api = charm_cluster.Cluster(client)
    found = api.get(charm_cluster.NAMESPACE, namespace)
    record = (
        f'{{"before": {{"istio-injection": null}}, "owner": "{namespace}.istio-integrator", '
        '"set": {"istio-injection": "enabled"}}'
    )
    patch = {
        "labels": {"istio-injection": "enabled"},
        "annotations": {"istio-integrator.charmhub.io/membership": record},
    }
    api.merge_patch(found, {"metadata": patch})
    charm_runs.run("remove", namespace, units=0)
    metadata = api.get(charm_cluster.NAMESPACE, namespace)["metadata"]
    assert "istio-injection" not in metadata["labels"]


def test_without_the_optional_roles_nothing_is_executed_and_no_other_pod_is_changed(
    control_plane, namespace
):
    """The oldest peer may execute in, delete and patch every pod, and does not need to."""
    shipped = yaml.safe_load_all(charm_runs.ROLES.read_text().replace("kubeflow", namespace))
    needed = [
        role
        for role in shipped
        if not role["metadata"]["name"].endswith(("-exec", "-replace", "-own-gateway"))
    ]
    text = yaml.safe_dump_all(needed)
    control_plane.kubectl("apply", "-f", "-", text=text)

    def may(verb: str, resource: str, where: str) -> bool:
        who = f"--as=system:serviceaccount:{namespace}:istio-integrator"
        kind, _, part = resource.partition("/")
        what = (kind, f"--subresource={part}") if part else (kind,)
        asked = ("auth", "can-i", verb, *what, f"--namespace={where}", who)
        return control_plane.kubectl(*asked, check=False).stdout.strip() == "yes"

    try:
        assert may("create", "pods/portforward", "default")
        assert may("patch", "pods", namespace)
        forbidden = [
            ("create", "pods/exec", "default"),
            ("create", "pods/exec", namespace),
            *((verb, "pods", "default") for verb in ("create", "patch", "update", "delete")),
            ("delete", "pods", namespace),
        ]
        assert [each for each in forbidden if may(*each)] == []
    finally:
        control_plane.kubectl("delete", "-f", "-", text=text)
