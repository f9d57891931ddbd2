"""What of the Gateway API a real istiod serves, and what it says about it."""

import contextlib

import pytest
from lightkube.resources import apps_v1, core_v1

from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import errors
from tests import waiting
from tests.functional import gateway_api_world as world
from tests.functional import ingress_world, istiod_world


@pytest.fixture(scope="module")
def served(client, kubeconfig, tmp_path_factory):
    """An API server with the Gateway API, and an istiod that serves it."""
    istiod_world.install_definitions(client)
    world.install_definitions(client)
    with contextlib.suppress(errors.ConflictError):
        charm_cluster.Cluster(client).create(ingress_world.namespace("istio-system"))
    with world.istiod(tmp_path_factory.mktemp("istiod"), kubeconfig):
        yield client


def test_istiod_offers_its_class_and_deploys_a_gateway(served, namespace):
    """The class appears by itself, and a Gateway of it becomes a workload that gets an address."""
    assert waiting.eventually(lambda: world._get(served, world.CLASSES, "istio", None))
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    spec = {"gatewayClassName": "istio", "listeners": [listener]}
    metadata = {"name": "way-in", "namespace": namespace}
    served.create(world.GATEWAYS({"metadata": metadata, "spec": spec}))

    def said():
        return world.conditions(served, "way-in", namespace)

    assert waiting.eventually(lambda: said().get("Accepted") == ("True", "Accepted")), said()
    assert said()["Programmed"][0] == "False"
    world.run_workload(served, "way-in-istio", namespace, {80: 20080})
    assert waiting.eventually(lambda: said()["Programmed"] == ("True", "Programmed")), said()
    made = served.get(apps_v1.Deployment, "way-in-istio", namespace=namespace)
    assert made.spec.template.metadata.labels["gateway.networking.k8s.io/gateway-name"] == "way-in"
    served.get(core_v1.ServiceAccount, "way-in-istio", namespace=namespace)
