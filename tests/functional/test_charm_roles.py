"""The charm without trust, with exactly the roles that are shipped."""

import contextlib
from collections.abc import Iterator

import lightkube
import pytest
import yaml
from ops import testing

from integrator_contract import names
from istio_integrator.admission import webhook
from istio_integrator.diagnosis.checks import rights as needed_rights
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import manifests
from tests import rights, waiting
from tests.functional import charm_runs, limits_world


def rules_for_ingress(roles: list[dict]) -> Iterator[dict]:
    """The rules that may be left out where no application is related to ingress."""
    for role in roles:
        for rule in list(role.get("rules", ())):
            needs = needed_rights.needs([{**role, "rules": [rule]}], model="")
            if all(map(needed_rights.is_for_ingress, needs)):
                role["rules"].remove(rule)
                yield rule


@pytest.fixture(params=["roles without ingress", "roles and policy"])
def restricted(request, namespace, untrusted, monkeypatch) -> Iterator[None]:
    """Connect the charm as its ServiceAccount, which has the shipped roles in the namespace."""
    with contextlib.ExitStack() as stack:
        made = charm_cluster.Cluster(stack.enter_context(lightkube.Client(config=untrusted)))
        monkeypatch.setattr(charm_cluster, "connect", lambda: made)
        testbed = request.getfixturevalue("control_plane")
        if request.param == "roles without ingress":
            roles = list(yaml.safe_load_all(rights.roles(namespace)))
            assert len(list(rules_for_ingress(roles))) == 25
            testbed.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(roles))
        if request.param == "roles and policy":
            admin = charm_cluster.Cluster(request.getfixturevalue("client"))
            world = limits_world.World(namespace, admin, made)
            stack.enter_context(limits_world.limited(testbed, world))
        yield


@pytest.fixture
def own(client, namespace) -> manifests.Manifests:
    api = charm_cluster.Cluster(client)
    return manifests.Manifests(api, model=namespace, application="istio-integrator")


def test_shipped_roles_suffice_for_the_webhook_and_to_leave(restricted, own, namespace, client):
    admin = charm_cluster.Cluster(client)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "istio-integrator-0", "namespace": namespace},
        "spec": {
            "serviceAccountName": "istio-integrator",
            "containers": [{"name": "lifecycle", "image": "workload:1"}],
        },
    }
    admin.create(pod)
    out = charm_runs.run("start", namespace, **{"excluded-pods": "a=b"})
    assert isinstance(out.unit_status, testing.WaitingStatus)
    kinds = {obj["kind"] for obj in own.owned()}
    assert {"Secret", "Deployment", "Service", "PodDisruptionBudget"} <= kinds

    def servers():
        labels = {names.COMPONENT: webhook.WORKLOAD_FOLDER}
        return admin.list(charm_cluster.POD, namespace, labels)

    assert waiting.eventually(lambda: len(servers()) == 2)
    charm_runs.run("config_changed", namespace, **{"excluded-pods": "a=b"})
    annotated = [names.REFRESH in one["metadata"]["annotations"] for one in servers()]
    assert annotated == [True, True]
    join(admin, namespace)
    charm_runs.run("remove", namespace, units=0)
    assert own.owned() == []
    metadata = admin.get(charm_cluster.NAMESPACE, namespace)["metadata"]
    assert "istio-injection" not in metadata["labels"]


def join(admin, namespace):
    """Have the model as the charm leaves it where there is an Istio."""
    record = (
        f'{{"before": {{"istio-injection": null}}, "owner": "{namespace}.istio-integrator", '
        '"set": {"istio-injection": "enabled"}}'
    )
    patch = {
        "labels": {"istio-injection": "enabled"},
        "annotations": {"istio-integrator.charmhub.io/membership": record},
    }
    admin.merge_patch(admin.get(charm_cluster.NAMESPACE, namespace), {"metadata": patch})
