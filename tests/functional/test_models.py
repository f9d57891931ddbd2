"""Models that KServe serves through Knative, behind the guard of a model's gateway."""

import contextlib
import dataclasses
import json

import pytest

from istio_integrator.ingress import tenant_policy
from istio_integrator.kube import errors
from tests import echo, gateway_client, waiting
from tests.functional import ingress_world, model_world, tenant_parts
from tests.functional.ingress_world import COMPLETE
from tests.functional.model_world import TOKEN, Model

COOKIE = echo.COOKIE
HEADER = "kubeflow-userid"
VICTIM = "victim@example.com"
IRIS = Model("iris", "team-alice")
DIGITS = Model("digits", "team-bob")
WILDCARD = f"*.{model_world.DOMAIN}"
ALONE = {"gateway_service": "", "hosts": ""}
SHARED = {
    "hosts": f"{gateway_client.HOST},{WILDCARD}",
    "tls_secret": ingress_world.SECRET,
    "https_redirect": True,
}


@pytest.fixture(scope="module")
def ground(client, kubeconfig, tmp_path_factory):
    """A gateway whose authorization service knows tokens."""
    with model_world.ground(client, kubeconfig, tmp_path_factory.mktemp("istiod")) as place:
        yield place


@contextlib.contextmanager
def without(place, *objects):
    """Have others' objects gone while the block runs."""
    for obj in objects:
        place.api.delete(obj)
    try:
        yield
    finally:
        for obj in objects:
            place.api.create(obj)


def is_rejected(place, obj):
    """Tell whether a tenant may not write an object."""
    with tenant_parts.being(place.kubeconfig, "alice@example.com") as alice:
        try:
            alice.create(obj, dry_run=True)
        except errors.RefusedError:
            return True
    return False


@contextlib.contextmanager
def enforced(place):
    """Have the tenant policy in force while the block runs."""

    def policy():
        part = place.part()
        scope = dataclasses.replace(part._scope, exposes=True)
        return tenant_policy.TenantPolicy(scope, lambda: part.target)

    policy().reconcile()
    try:
        for route in (model_world.inference_service(IRIS), model_world.knative_route(IRIS)):
            assert waiting.eventually(lambda route=route: is_rejected(place, route))
        yield
    finally:
        policy().remove()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(ALONE, id="a gateway of the model's own"),
        pytest.param(SHARED, id="a named gateway with a wildcard"),
    ],
)
def models(request, ground, client, tmp_path_factory):
    """Two models of two users, written by controllers while the tenant policy is in force.

    Calls from inside have a gateway workload of their own.
    """
    is_shared = request.param is SHARED
    folder = tmp_path_factory.mktemp("local") / "gateway"
    neighbours = () if is_shared else tuple(ingress_world.tenant())
    with contextlib.ExitStack() as stack:
        stack.enter_context(without(ground, *neighbours))
        ground.options, ground.auths = request.param, [COMPLETE]
        written = model_world.serving(
            ground, client, folder, [IRIS, DIGITS], held=enforced(ground)
        )
        found = stack.enter_context(written)
        found.said = ground.reconcile()
        stack.callback(ground.part().remove)
        found.tls = is_shared
        for model in (IRIS, DIGITS):
            assert waiting.eventually(lambda model=model: is_served(found, model)), found.said
        for asked in found.served.values():
            asked.clear()
        yield found


def is_served(models, model):
    """Tell whether its own pods answer from outside and from inside."""
    visits = [
        models.ask(host, tls=models.tls, Cookie=COOKIE)
        for host in (model.host, model.predictor_host)
    ]
    short = f"{model.predictor}.{model.namespace}"
    visits += [models.ask_inside(host) for host in (model.inside, short)]
    return all(models.is_from(model, visit) for visit in visits)


@pytest.mark.parametrize("host", [IRIS.host, IRIS.predictor_host])
def test_stranger_gets_the_services_answer_and_no_model_is_asked(models, host):
    for headers in ({}, {"Authorization": "Bearer bad"}, {"Cookie": "session=bad"}):
        answer = models.ask(host, tls=models.tls, **headers)
        assert (answer.status, answer.headers["location"]) == (302, echo.LOGIN)
    assert not models.served[IRIS.namespace]


@pytest.mark.parametrize("who", [{"Cookie": COOKIE}, {"Authorization": TOKEN}])
@pytest.mark.parametrize("model", [IRIS, DIGITS])
def test_session_or_token_reaches_the_model_with_the_hosts_that_knative_knows(models, model, who):
    answer = models.ask(model.host, tls=models.tls, **who)
    assert answer.status == 200
    assert models.served[model.namespace][-1] == answer.echo
    headers = answer.echo["headers"]
    assert answer.echo["path"] == model_world.PREDICT
    assert headers["host"] == f"{model.predictor}.{model.namespace}.svc.cluster.local"
    assert headers["kserve-isvc-name"] == model.name
    assert headers["knative-serving-revision"] == f"{model.predictor}-00001"
    assert headers[HEADER] == echo.USER
    models.served[model.namespace].clear()


@pytest.mark.parametrize("who", [{"Cookie": COOKIE}, {"Authorization": TOKEN}])
def test_claimed_identity_arrives_at_a_model_as_what_the_service_said(models, who):
    claims = {HEADER: VICTIM, "kubeflow_userid": VICTIM, "Kubeflow-Userid": VICTIM}
    for name, value in claims.items():
        answer = models.place.asked_once(
            model_world.PREDICT,
            tls=IRIS.host if models.tls else "",
            host=IRIS.host,
            **who,
            **{name: value},
        )
        assert answer.status == 200
        said = [
            value
            for name, value in answer.echo["headers"].items()
            if name.replace("_", "-") == HEADER and value
        ]
        assert said == [echo.USER]
    assert VICTIM not in json.dumps(models.place.asked)


def test_call_from_inside_is_answered_without_a_question(models):
    models.place.asked.clear()
    predictor = f"{IRIS.predictor}.{IRIS.namespace}"
    for host in (IRIS.inside, predictor, f"{predictor}.svc.cluster.local"):
        answer = models.ask_inside(host)
        assert (answer.status, answer.echo["port"]) == (200, models.ports[IRIS.namespace])
    assert models.place.asked == []


def test_name_for_calls_from_inside_is_no_way_in_from_outside(models):
    for host in (IRIS.inside, f"{IRIS.predictor}.{IRIS.namespace}.svc.cluster.local"):
        for headers in ({}, {"Cookie": COOKIE}):
            answer = models.ask(host, tls=models.tls, **headers)
            assert getattr(answer, "status", 0) != 200
    assert models.place.asked_once("/", host=IRIS.inside).status != 200


def refused(models, host):
    """Tell whether not even a token opens a host."""
    return models.status(host, tls=models.tls, Authorization=TOKEN) == 403


def test_models_close_with_the_model(models):
    models.place.auths = []
    models.place.reconcile()
    try:
        for model in (IRIS, DIGITS):
            for host in (model.host, model.predictor_host):
                assert waiting.eventually(lambda host=host: refused(models, host))
    finally:
        models.place.auths = [COMPLETE]
        models.place.reconcile()
        for model in (IRIS, DIGITS):
            assert waiting.eventually(lambda model=model: is_served(models, model))
