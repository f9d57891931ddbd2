"""The model's routes as HTTPRoutes: what a real istiod and Envoy make of them and of the guard."""

import json

import pytest

from integrator_contract import names
from integrator_contract.seen import Expectation, Server
from istio_integrator.ingress import gateway
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.relations import kubeflow
from tests import echo, gateway_client, waiting
from tests.functional import gateway_api_world as world
from tests.functional import ingress_world, istiod_world
from tests.functional.gateway_looks import look

MODEL = ingress_world.MODEL


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    """A model that is served by a Gateway which istiod deploys."""
    with world.serving(client, kubeconfig, tmp_path_factory.mktemp("istiod")) as found:
        yield found


@pytest.fixture
def served(place, client):
    """The same with its options and relations as they were, and its routes up."""
    options, auths = dict(place.options), [*place.auths]
    place.reconcile()
    world.run(place, client, 80)
    place.eventually(200, Cookie=echo.COOKIE)
    yield place
    place.options, place.auths = options, auths


def test_https_is_served_with_the_certificate_and_http_leads_there(served, client):
    with served.there(world.certificate(served.folder)):
        served.options |= {"tls_secret": ingress_world.SECRET, "https_redirect": True}
        served.reconcile()
        world.run(served, client, 80, 443)
        asked = {"tls": gateway_client.HOST, "Cookie": echo.COOKIE}
        # The proxy asks for the certificate after it has the listener.
        assert waiting.eventually(
            lambda: getattr(served.asked_once(**asked), "status", 0) == 200, 90
        )
        answer = served.asked_once(**asked)
        assert answer.echo["headers"]["kubeflow-userid"] == echo.USER
        assert served.asked_once(tls=gateway_client.HOST).status == 302
        expected = Expectation(
            namespace=MODEL,
            selector={names.GATEWAY_NAME: gateway.NAME},
            gateway=f"{MODEL}/{gateway.NAME}",
            servers=(
                Server(port=80, protocol="HTTP", hosts=("*",)),
                Server(port=443, protocol="HTTPS", hosts=("*",)),
            ),
            filters=("envoy.filters.http.router",),
            entry="ask",
        )
        answer = look(expected, lambda answer: answer.unseen is None, admins=[served.admin])
        assert (answer.guarded, answer.missing) == ((80, 443), ())
        served.asked.clear()
        answer = served.eventually(301, Cookie=echo.COOKIE)
        assert answer.headers["location"] == f"https://{gateway_client.HOST}/kfp/x"
        assert served.asked == []


def test_controllers_hear_of_the_gateway_once_it_is_served(served):
    served.reconcile()
    assert json.loads(served.told[kubeflow.GATEWAY_METADATA][kubeflow.METADATA]) == {
        "namespace": MODEL,
        "gateway_name": "kubeflow-gateway",
        "deployment_name": "kubeflow-gateway-istio",
        "service_account": "kubeflow-gateway-istio",
    }
    assert any("203.0.113.7" in said for said in served.reconcile())
    assert served.published == {"up": False}


def test_what_istiod_makes_does_not_bear_our_labels(served):
    """Else it would go with what we prune, and its pods would change with our annotations."""
    for kind in (charm_cluster.DEPLOYMENT, charm_cluster.SERVICE):
        made = served.api.get(kind, "kubeflow-gateway-istio", MODEL)
        said = json.dumps([made["metadata"]["labels"], made["metadata"].get("annotations")])
        assert "istio-integrator" not in said
        assert "juju" not in said


def test_reconciling_again_writes_nothing(served):
    served.reconcile()

    def versions():
        return {
            each["metadata"]["resourceVersion"]
            for each in served.part()._scope.manifests.owned()
            if each["kind"] in ("Gateway", "HTTPRoute", "EnvoyFilter")
        }

    before = versions()
    served.reconcile()
    assert versions() == before


def virtual_service():
    """A notebook's route on the Gateway of Istio's own kind."""
    return ingress_world.virtual_service(
        "shop",
        "notebook",
        [f"{MODEL}/{gateway.NAME}"],
        ["*"],
        {"route": ingress_world.lead(ingress_world.WEB)},
    )


def guards(served):
    """List the filters that are ours: tenants of other modules have theirs."""
    manifests = served.part()._scope.manifests
    return [one for one in served.api.list(charm_cluster.ENVOY_FILTER) if manifests.is_ours(one)]


def test_switch_names_who_would_be_cut_off_and_leaves_nothing_behind(served, client):
    """To VirtualServices, back to a refusal while somebody else has one there, then on."""
    workload = [*ingress_world.gateway_workload((("http2", 80, 8080),))]
    with served.there(ingress_world.namespace(istiod_world.GATEWAY_NAMESPACE), *workload):
        served.options["routing"] = "virtualservice"
        said = served.reconcile()
        assert "waiting for pods of Service istio-ingress/gateway" in said
        assert served.api.get(charm_cluster.GATEWAY, gateway.NAME, MODEL)
        assert served.api.get(charm_cluster.KUBERNETES_GATEWAY, gateway.NAME, MODEL) is None
        assert served.api.list(charm_cluster.HTTP_ROUTE, MODEL) == []
        assert served.told[kubeflow.GATEWAY_METADATA][kubeflow.METADATA] == ""
        (guard,) = guards(served)
        assert guard["metadata"]["namespace"] == istiod_world.GATEWAY_NAMESPACE

        served.options["routing"] = "gateway-api"
        with served.there(virtual_service()):
            said = served.reconcile()
            assert any("shop/notebook" in each for each in said), said
            assert served.api.get(charm_cluster.GATEWAY, gateway.NAME, MODEL)
            assert served.api.get(charm_cluster.KUBERNETES_GATEWAY, gateway.NAME, MODEL) is None
        served.reconcile()
        assert served.api.get(charm_cluster.GATEWAY, gateway.NAME, MODEL) is None
        assert served.api.get(charm_cluster.KUBERNETES_GATEWAY, gateway.NAME, MODEL)
        assert len(served.api.list(charm_cluster.HTTP_ROUTE, MODEL)) == 3
        (guard,) = guards(served)
        assert guard["metadata"]["namespace"] == MODEL
        assert served.api.list(charm_cluster.VIRTUAL_SERVICE) == []
    world.run(served, client, 80)
    served.eventually(200, Cookie=echo.COOKIE)
    assert served.asked_once().status == 302


def test_removal_leaves_nothing_of_ours(served):
    part = served.part()
    part.remove()
    assert part._scope.manifests.owned() == []
