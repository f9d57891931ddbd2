"""Models where Knative's own Gateways are on the workload that serves the model, as shipped."""

import contextlib

import lightkube
import pytest
from lightkube.models import networking_v1 as models
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources import networking_v1 as resources

from istio_integrator.diagnosis.checks import routes as checked
from istio_integrator.kube import cluster
from istio_integrator.messages import Said
from tests import echo, gateway_client, waiting
from tests.functional import istiod_world, model_world
from tests.functional.ingress_world import DOMAIN, lead, virtual_service
from tests.functional.model_world import INGRESS, OURS, TOKEN, Model

COOKIE = echo.COOKIE
IRIS = Model("iris", "team-alice")
OPEN = Model("open", "team-bob", gateway=INGRESS)
"""One that Knative serves where it does as it is shipped."""
HOST = gateway_client.HOST
RAW = f"raw-team-alice.{model_world.DOMAIN}"


@pytest.fixture(scope="module")
def shared(client, kubeconfig, tmp_path_factory):
    """A gateway that others use, where the model has one host."""
    folder = tmp_path_factory.mktemp("istiod")
    with contextlib.ExitStack() as stack:
        ground = stack.enter_context(model_world.ground(client, kubeconfig, folder))
        ground.options = {"hosts": HOST}
        there = model_world.serving(ground, client, folder, [IRIS, OPEN], istiod_world.LABELS)
        found = stack.enter_context(there)
        ground.reconcile()
        stack.callback(ground.part().remove)
        ground.eventually(200, Cookie=COOKIE)
        assert waiting.eventually(lambda: found.status(OPEN.host) == 200)
        yield found


def diagnosed(found):
    """What diagnose says about the routes that are there."""
    served = found.place.part().target.written_hosts
    routes = found.place.api.list(cluster.VIRTUAL_SERVICE)
    ours = [each for each in routes if each["metadata"]["namespace"].startswith("team-")]
    return checked.judge_hosts(ours, OURS, served)


def test_model_at_no_host_of_ours_is_served_to_nobody_and_named(shared):
    for host in (IRIS.host, IRIS.predictor_host):
        for headers in ({}, {"Cookie": COOKIE}, {"Authorization": TOKEN}):
            assert shared.status(host, **headers) == 404
    said = diagnosed(shared)
    assert said.said is Said.HOSTS_NOT_SERVED
    assert "team-alice/iris" in said.about["routes"]
    assert IRIS.host in said.about["hosts"]


def test_model_on_knatives_own_gateway_is_served_to_everybody(shared):
    for host in (OPEN.host, OPEN.predictor_host):
        assert shared.status(host) == 200


def test_host_of_ours_is_asked_about_also_on_knatives_own_gateway(shared):
    ours = {"hosts": f"{HOST},{OPEN.host},{OPEN.predictor_host}"}
    shared.place.options, before = ours, shared.place.options
    shared.place.reconcile()
    try:
        for host in (OPEN.host, OPEN.predictor_host):
            assert waiting.eventually(lambda host=host: shared.status(host) == 302)
            assert waiting.eventually(
                lambda host=host: shared.status(host, Authorization=TOKEN) == 200
            )
    finally:
        shared.place.options = before
        shared.place.reconcile()
        assert waiting.eventually(lambda: shared.status(OPEN.host) == 200)


def test_model_without_knative_is_served_by_a_path_of_our_host(shared):
    """The route of docs/how-to/kserve.md, to a Service as KServe makes it without Knative."""
    path, name = "/serving/team-alice/iris", f"{IRIS.predictor}-00001"
    rule = {
        "match": [{"uri": {"prefix": f"{path}/"}}],
        "rewrite": {"uri": "/"},
        "route": lead(f"{name}.team-alice.svc.{DOMAIN}"),
    }
    mine = virtual_service("team-alice", "iris-path", [OURS], [HOST], rule)
    with shared.place.there(mine):
        asked = f"{path}{model_world.PREDICT}"

        def answer(**headers):
            return shared.place.asked_once(asked, host=HOST, **headers)

        assert waiting.eventually(lambda: shared.is_from(IRIS, answer(Authorization=TOKEN)))
        assert answer().status == 302
        got = answer(Authorization=TOKEN, **{"kubeflow-userid": "victim@example.com"})
        assert got.echo["path"] == model_world.PREDICT
        assert got.echo["headers"]["kubeflow-userid"] == echo.USER


@contextlib.contextmanager
def ingress(client):
    """What KServe writes without Knative (kube_ingress_reconciler.go), and a class for istiod."""
    backend = models.IngressBackend(
        service=models.IngressServiceBackend(
            name=f"{IRIS.predictor}-00001", port=models.ServiceBackendPort(number=80)
        )
    )
    path = models.HTTPIngressPath(path="/", pathType="Prefix", backend=backend)
    rules = [models.IngressRule(host=RAW, http=models.HTTPIngressRuleValue(paths=[path]))]
    of_class = models.IngressClassSpec(controller="istio.io/ingress-controller")
    made = [
        resources.IngressClass(metadata=ObjectMeta(name="istio"), spec=of_class),
        resources.Ingress(
            metadata=ObjectMeta(name="raw", namespace="team-alice"),
            spec=models.IngressSpec(ingressClassName="istio", rules=rules),
        ),
    ]
    with contextlib.ExitStack() as stack:
        for obj in made:
            client.create(obj)
            stack.callback(client.delete, type(obj), obj.metadata.name, **_where(obj))
        yield


def _where(obj):
    return {"namespace": obj.metadata.namespace} if obj.metadata.namespace else {}


def test_ingress_of_kserve_is_asked_about_at_a_host_of_ours_only(shared, client: lightkube.Client):
    with ingress(client):
        assert waiting.eventually(lambda: shared.status(RAW) == 200)
        shared.place.options, before = {"hosts": f"{HOST},{RAW}"}, shared.place.options
        shared.place.reconcile()
        try:
            assert waiting.eventually(lambda: shared.status(RAW) == 302)
        finally:
            shared.place.options = before
            shared.place.reconcile()
            assert waiting.eventually(lambda: shared.status(RAW) == 200)
