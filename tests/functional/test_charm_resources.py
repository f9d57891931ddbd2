"""Requests and limits on the StatefulSet that Juju made, on a real API server, without trust."""

import copy
from collections.abc import Iterator

import lightkube
import ops
import pytest
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType

from integrator_contract import names
from istio_integrator.kube import cluster as charm_cluster
from tests.functional import charm_runs, limits_world

APP = "istio-integrator"
OF_JUJU = {"requests": {"memory": "64Mi"}, "limits": {"memory": "1Gi"}}
StatefulSet = create_namespaced_resource("apps", "v1", "StatefulSet", "statefulsets")
LimitRange = create_namespaced_resource("", "v1", "LimitRange", "limitranges")


class Juju:
    """What Juju does with an application's StatefulSet."""

    def __init__(self, client: lightkube.Client, model: str) -> None:
        self._client = client
        self._model = model
        label = {"app.kubernetes.io/name": APP}
        spec = {
            "serviceAccountName": APP,
            "containers": [
                {"name": "charm", "image": "juju:1", "resources": OF_JUJU},
                {"name": "lifecycle", "image": "ours:1", "resources": {}},
            ],
        }
        self.wanted = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": APP, "namespace": model, "labels": label},
            "spec": {
                "replicas": 0,
                "serviceName": f"{APP}-endpoints",
                "selector": {"matchLabels": label},
                "template": {"metadata": {"labels": label}, "spec": spec},
            },
        }
        client.create(StatefulSet(self.wanted), namespace=model, field_manager="juju")

    @property
    def pod(self) -> dict:
        """What each unit's pod is made of, as Juju wants it."""
        return self.wanted["spec"]["template"]["spec"]

    def apply(self) -> None:
        """Patch as Juju does: what is there, with a template of its own, by strategic merge."""
        found = copy.deepcopy(dict(self.live()))
        # Juju tries again where the StatefulSet's controller wrote its status meanwhile.
        del found["metadata"]["resourceVersion"]
        found["spec"]["template"] = self.wanted["spec"]["template"]
        self._client.patch(
            StatefulSet,
            APP,
            found,
            namespace=self._model,
            patch_type=PatchType.STRATEGIC,
            field_manager="juju",
        )

    def live(self) -> dict:
        """The StatefulSet as it is."""
        return self._client.get(StatefulSet, APP, namespace=self._model)

    def resources(self) -> dict[str, dict]:
        """What each container requests and is limited to."""
        containers = self.live()["spec"]["template"]["spec"]["containers"]
        assert [each["name"] for each in containers] == ["charm", "lifecycle"]
        return {each["name"]: each.get("resources", {}) for each in containers}


@pytest.fixture(params=["roles", "roles and policy"])
def juju(request, client, namespace, untrusted, monkeypatch) -> Iterator[Juju]:
    """A model whose application has the shipped roles, and is held by the shipped policy."""
    with lightkube.Client(config=untrusted) as own:
        made = charm_cluster.Cluster(own)
        monkeypatch.setattr(charm_cluster, "connect", lambda: made)
        if request.param == "roles":
            yield Juju(client, namespace)
            return
        testbed = request.getfixturevalue("control_plane")
        world = limits_world.World(namespace, charm_cluster.Cluster(client), made)
        with limits_world.limited(testbed, world):
            yield Juju(client, namespace)


LIFECYCLE = {
    "requests": {"cpu": "250m", "memory": "200Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}
CHARM = {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": OF_JUJU["limits"]}


def test_options_come_stay_and_go(juju, namespace):
    before = juju.live()["spec"]
    out = charm_runs.run("config_changed", namespace, cpu="0.5", memory="512Mi")
    assert out.unit_status.name == "waiting", out.unit_status
    assert juju.resources() == {"charm": CHARM, "lifecycle": LIFECYCLE}
    applied = juju.live()["metadata"]
    assert applied["annotations"][names.RESOURCES] == "cpu=500m,memory=512Mi"

    charm_runs.run("config_changed", namespace, cpu="500m", memory="512Mi")
    assert juju.live()["metadata"]["generation"] == applied["generation"]

    juju.pod["containers"][1]["image"] = "ours:2"
    juju.apply()
    assert juju.resources() == {"charm": CHARM, "lifecycle": LIFECYCLE}
    assert juju.live()["spec"]["template"]["spec"]["containers"][1]["image"] == "ours:2"

    charm_runs.run("config_changed", namespace, memory="512Mi")
    memory = {"requests": {"memory": "200Mi"}, "limits": {"memory": "512Mi"}}
    assert juju.resources() == {"charm": OF_JUJU, "lifecycle": memory}

    juju.pod["containers"][1]["image"] = "ours:1"
    juju.apply()
    charm_runs.run("config_changed", namespace)
    assert juju.live()["spec"] == before
    assert names.RESOURCES not in juju.live()["metadata"].get("annotations", {})


def test_constraints_that_say_another_thing_stay(juju, namespace):
    juju.pod["containers"][1]["resources"] = {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}
    juju.apply()
    before = juju.live()["spec"]
    out = charm_runs.run("config_changed", namespace, cpu="500m")
    assert isinstance(out.unit_status, ops.BlockedStatus)
    assert out.unit_status.message.startswith("cpu=500m: constraints set it too; run: juju config")
    assert juju.live()["spec"] == before


def test_limits_that_no_pod_would_be_let_have_are_not_applied(juju, namespace, client):
    most = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    metadata = {"name": "most", "namespace": namespace}
    client.create(LimitRange({"metadata": metadata, "spec": most}), namespace=namespace)
    before = juju.live()["spec"]
    out = charm_runs.run("config_changed", namespace, cpu="2")
    assert isinstance(out.unit_status, ops.BlockedStatus)
    assert out.unit_status.message.startswith("cpu=2: a pod with this value is rejected: ")
    assert "maximum cpu usage per Container is 1" in out.unit_status.message
    assert juju.live()["spec"] == before
