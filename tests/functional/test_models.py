"""Models that KServe serves through Knative, behind the guard of a model's gateway."""

import contextlib
import dataclasses
import json

import lightkube
import pytest
from lightkube.resources.networking_v1 import Ingress, IngressClass

from istio_integrator.messages import Template
from tests import api, echo, gateway_client, waiting
from tests.functional import ingress_world, istiod_world, model_world
from tests.functional.ingress_world import COMPLETE, DOMAIN, OURS, to, virtual_service
from tests.functional.model_world import INGRESS, LOCAL_LABELS, TOKEN, Model

HOST = gateway_client.HOST
HEADER = "kubeflow-userid"
VICTIM = "victim@example.com"
IRIS = Model("iris", "team-alice")
DIGITS = Model("digits", "team-bob")
OPEN = Model("open", "team-bob", gateway=INGRESS)
"""One that Knative serves where it does as it is shipped."""
RAW = f"raw-team-alice.{model_world.DOMAIN}"
STRANGERS = ({}, {"Authorization": "Bearer bad"}, {"Cookie": "session=bad"})
USERS = ({"Cookie": echo.COOKIE}, {"Authorization": TOKEN})


@dataclasses.dataclass(frozen=True)
class World:
    """Options of the charm, the workload for calls from inside, and the models."""

    options: dict[str, str | bool]
    labels: dict[str, str]
    models: tuple[Model, ...]
    is_open: tuple[Model, ...] = ()
    """Models that strangers reach."""

    @property
    def served(self):
        """Models that users reach, with what users send."""
        return [(model, {} if model in self.is_open else USERS[0]) for model in self.models]


ALONE = {"gateway_service": "", "hosts": ""}
WILDCARD = {
    "hosts": f"{HOST},*.{model_world.DOMAIN}",
    "tls_secret": ingress_world.SECRET,
    "https_redirect": True,
}
WORLDS = {
    "own gateway": World(ALONE, LOCAL_LABELS, (IRIS, DIGITS)),
    "named gateway with a wildcard": World(WILDCARD, LOCAL_LABELS, (IRIS, DIGITS)),
    "Knative's Gateways on our own workload": World(ALONE, ingress_world.OWN_LABELS, ()),
    "Knative's Gateways on a named workload": World(
        {"hosts": HOST}, istiod_world.LABELS, (OPEN,), is_open=(OPEN,)
    ),
}
ASKED = list(WORLDS)[:2]
"""Worlds where calls from inside have a gateway workload of their own."""
SHARED = list(WORLDS)[3]


def of(*names):
    """Run a test in some of the worlds."""
    return pytest.mark.parametrize("models", names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def ground(client, kubeconfig, tmp_path_factory):
    """A gateway whose authorization service knows tokens."""
    folder = tmp_path_factory.mktemp("istiod")
    decides = model_world.Authorization
    with ingress_world.serving(client, kubeconfig, folder, decides=decides) as place:
        place.kubeconfig = kubeconfig
        yield place


def is_rejected(place, obj):
    """Tell whether a tenant may not write an object."""
    with ingress_world.being(place.kubeconfig, "alice@example.com") as alice:
        try:
            alice.create(obj, dry_run=True)
        except api.ApiError as error:
            return error.code == 422
    return False


@contextlib.contextmanager
def enforced(place):
    """Deploy the charm, and wait until its tenant policy is enforced; remove it at the end."""
    said = place.reconcile()
    try:
        for route in (model_world.inference_service(IRIS), model_world.knative_route(IRIS)):
            assert waiting.eventually(lambda route=route: is_rejected(place, route)), said
        yield
    finally:
        place.remove()


@pytest.fixture(scope="module")
def models(request, ground, client, tmp_path_factory):
    """Models of two users, written by controllers while the tenant policy is in force."""
    world = WORLDS[request.param]
    with contextlib.ExitStack() as stack:
        if world.options is ALONE:
            folder = tmp_path_factory.mktemp("own")
            stack.enter_context(ingress_world.own_gateway(ground, folder))
        ground.options, ground.auths = world.options, [COMPLETE]
        models = dict.fromkeys([IRIS, *world.models])
        folder, held = tmp_path_factory.mktemp("local"), enforced(ground)
        written = model_world.serving(ground, client, folder, models, world.labels, held=held)
        found = stack.enter_context(written)
        found.world = world
        said = ground.reconcile()
        assert waiting.eventually(lambda: is_served(found)), said
        for asked in found.served.values():
            asked.clear()
        yield found


def is_served(models):
    """Tell whether the pods of each model answer users from outside and from inside."""
    is_inside = models.world.labels == LOCAL_LABELS
    for model, who in models.world.served:
        visits = [models.ask(host, **who) for host in (model.host, model.predictor_host)]
        short = f"{model.predictor}.{model.namespace}"
        visits += [models.ask_inside(host) for host in (model.inside, short) if is_inside]
        if not all(models.is_from(model, visit) for visit in visits):
            return False
    return True


def inside(models, **headers):
    """Return the status of a request from a pod; 0 without an answer."""
    try:
        return models.ask_inside(IRIS.inside, **headers).status
    except OSError:
        return 0


def status(models, host, **headers):
    """Return the status of a request from outside; 0 without an answer."""
    return getattr(models.ask(host, **headers), "status", 0)


@contextlib.contextmanager
def given(models, **changes):
    """Have other relations or options while the block runs."""
    place, before = models.place, {name: getattr(models.place, name) for name in changes}
    vars(place).update(changes)
    place.reconcile()
    try:
        yield
    finally:
        vars(place).update(before)
        place.reconcile()
        assert waiting.eventually(lambda: is_served(models))


@of(*ASKED)
@pytest.mark.parametrize("host", [IRIS.host, IRIS.predictor_host])
def test_stranger_gets_the_services_answer_and_no_model_is_asked(models, host):
    for headers in STRANGERS:
        answer = models.ask(host, **headers)
        assert (answer.status, answer.headers["location"]) == (302, echo.LOGIN)
    assert not models.served[IRIS.namespace]


@of(*ASKED)
@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("model", [IRIS, DIGITS])
def test_session_or_token_reaches_the_model_with_the_hosts_that_knative_knows(models, model, who):
    answer = models.ask(model.host, **who)
    assert answer.status == 200
    assert models.served[model.namespace][-1] == answer.echo
    told = {
        "host": f"{model.predictor}.{model.namespace}.svc.cluster.local",
        "kserve-isvc-name": model.name,
        "knative-serving-revision": f"{model.predictor}-00001",
        HEADER: echo.USER,
    }
    assert answer.echo["path"] == model_world.PREDICT
    assert {name: answer.echo["headers"][name] for name in told} == told
    models.served[model.namespace].clear()


@of(*ASKED)
@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("name", [HEADER, "kubeflow_userid", "Kubeflow-Userid"])
def test_claimed_identity_arrives_at_a_model_as_what_the_service_said(models, who, name):
    answer = models.ask(IRIS.host, **who, **{name: VICTIM})
    assert answer.status == 200
    headers = answer.echo["headers"].items()
    said = [value for key, value in headers if key.replace("_", "-") == HEADER and value]
    assert said == [echo.USER]
    assert VICTIM not in json.dumps(models.place.asked)


@of(*ASKED, SHARED)
def test_call_from_inside_is_answered_without_a_question(models):
    models.place.asked.clear()
    predictor = f"{IRIS.predictor}.{IRIS.namespace}"
    for host in (IRIS.inside, predictor, f"{predictor}.svc.cluster.local"):
        assert models.is_from(IRIS, models.ask_inside(host))
    assert models.place.asked == []


@of(*ASKED)
def test_name_for_calls_from_inside_is_no_way_in_from_outside(models):
    for host in (IRIS.inside, f"{IRIS.predictor}.{IRIS.namespace}.svc.cluster.local"):
        for headers in ({}, USERS[0]):
            assert status(models, host, **headers) != 200
    assert models.place.asked_once("/", host=IRIS.inside).status != 200


@of(*ASKED)
def test_models_close_with_the_model(models):
    with given(models, auths=[]):
        for model in (IRIS, DIGITS):
            for host in (model.host, model.predictor_host):
                # Not even a token opens a host.
                assert waiting.eventually(lambda h=host: status(models, h, **USERS[1]) == 403)


@of("Knative's Gateways on our own workload")
def test_our_own_workload_takes_no_calls_from_inside(models):
    """It serves the ports of its own Service alone."""
    for headers in ({}, USERS[1]):
        assert waiting.eventually(lambda h=headers: inside(models, **h) == 403)
    assert waiting.eventually(lambda: status(models, IRIS.host) == 302)
    assert waiting.eventually(lambda: status(models, IRIS.host, **USERS[1]) == 403)
    assert not models.served[IRIS.namespace]


@of(SHARED)
def test_model_at_no_host_of_ours_is_served_to_nobody_and_named(models):
    for host in (IRIS.host, IRIS.predictor_host):
        for headers in ({}, *USERS):
            assert status(models, host, **headers) == 404
    (seen,) = (
        row["seen"]
        for row in models.place.diagnosed()
        if row["message"] == Template.HOSTS_NOT_SERVED.name
    )
    assert "team-alice/iris" in seen
    assert IRIS.host in seen


@of(SHARED)
def test_model_on_knatives_own_gateway_is_served_to_everybody_unless_its_host_is_ours(models):
    hosts = (OPEN.host, OPEN.predictor_host)
    for host in hosts:
        assert status(models, host) == 200
    with given(models, options={"hosts": ",".join((HOST, *hosts))}):
        for host in hosts:
            assert waiting.eventually(lambda host=host: status(models, host) == 302)
            assert waiting.eventually(lambda host=host: status(models, host, **USERS[1]) == 200)


@of(SHARED)
def test_model_without_knative_is_served_by_a_path_of_our_host(models):
    """The route of docs/how-to/kserve.md, to a Service as KServe makes it without Knative."""
    path, name = "/serving/team-alice/iris", f"{IRIS.predictor}-00001"
    rule = to(f"{name}.team-alice.svc.{DOMAIN}", f"{path}/", rewrite={"uri": "/"})
    with models.place.there(virtual_service("team-alice", "iris-path", [OURS], [HOST], rule)):

        def answer(**headers):
            return models.ask(HOST, f"{path}{model_world.PREDICT}", **headers)

        assert waiting.eventually(lambda: models.is_from(IRIS, answer(**USERS[1])))
        assert answer().status == 302
        got = answer(**USERS[1], **{HEADER: VICTIM})
        assert got.echo["path"] == model_world.PREDICT
        assert got.echo["headers"][HEADER] == echo.USER


@pytest.fixture
def ingress(client: lightkube.Client):
    """KServe's Ingress without Knative (kube_ingress_reconciler.go), and an IngressClass."""
    service = {"name": f"{IRIS.predictor}-00001", "port": {"number": 80}}
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": service}}
    spec = {"ingressClassName": "istio", "rules": [{"host": RAW, "http": {"paths": [path]}}]}
    metadata = {"name": "raw", "namespace": "team-alice"}
    of_class = {"controller": "istio.io/ingress-controller"}
    client.create(IngressClass.from_dict({"metadata": {"name": "istio"}, "spec": of_class}))
    client.create(Ingress.from_dict({"metadata": metadata, "spec": spec}))
    yield
    client.delete(Ingress, "raw", namespace="team-alice")
    client.delete(IngressClass, "istio")


@of(SHARED)
def test_ingress_of_kserve_is_asked_about_at_a_host_of_ours_only(models, ingress):
    assert waiting.eventually(lambda: status(models, RAW) == 200)
    with given(models, options={"hosts": f"{HOST},{RAW}"}):
        assert waiting.eventually(lambda: status(models, RAW) == 302)
    assert waiting.eventually(lambda: status(models, RAW) == 200)
