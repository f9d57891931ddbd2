"""Each heading of the page of symptoms: what is broken is seen, and `diagnose` leads there."""

import base64
import contextlib
import datetime
import json
import threading

import pytest

from integrator_contract import names
from istio_integrator.admission import certificates
from testbed import istio
from testbed.kit import workloads
from tests import echo, gateway_client, waiting
from tests.e2e import ingress_world, pages_world
from tests.e2e import symptoms_world as world

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.cluster("tomorrow")]

APP = world.APP
MODEL = "ill"
MESH = "istio-system"


@pytest.fixture(scope="module")
def made(node):
    with world.made(node, MODEL) as found:
        yield found


@pytest.fixture
def place(made):
    """The model, well again after each test."""
    before = made.juju.config(APP)
    yield made
    now = made.juju.config(APP)
    if changed := tuple(key for key in now if now[key] != before[key]):
        made.juju.config(APP, reset=changed)
    made.says("2 routes served by", 240)
    made.juju.wait_for(APP)
    assert waiting.eventually(made.is_open, 120)


def test_healthy_model_gives_only_check_marks(place):
    report = place.sees("authenticates requests to port 80 of the gateway", place.diagnose)
    assert {each[0] for each in world.paragraphs(report)[:-1]} == {"✓"}, report
    assert "backends of routes are ready" in report


def test_proxy_that_outlives_the_work_is_not_ready(place):
    place.juju.config(APP, {"proxy-shutdown": False})
    place.settle()
    with place.broken(pages_world.worker("job", MODEL, place.image)):
        query = ("get", "pod", "-n", MODEL, "job", "--no-headers")
        place.sees("1/2 NotReady", lambda: " ".join(place.kubectl(*query).split()))
        place.leads("12-notready", "is not complete")
        place.juju.run(f"{APP}/0", "stop-proxy", {"pod": "job"})
        place.complete("job", MODEL)


def test_pod_that_missed_its_sidecar_is_listed(place):
    place.kubectl("label", "namespace", MODEL, "istio-injection-")
    body = workloads.template([workloads.container("main", place.image, pages_world.FOR_EVER)])
    with place.broken(workloads.pod("bare", MODEL, body)):
        place.kubectl("wait", "-n", MODEL, "pod/bare", "--for=condition=Ready", "--timeout=60s")
        query = ("get", "pod", "-n", MODEL, "bare", "--no-headers")
        seen = " ".join(place.kubectl(*query).split())
        assert "1/1 Running" in seen
        place.leads("a-pod-without-istio-proxy", "no sidecar: ill/bare")


def test_istiod_that_is_away_fails_the_calls_of_its_webhook(place):
    place.kubectl("scale", "-n", MESH, "deployment/istiod", "--replicas=0")
    place.kubectl("wait", "-n", MESH, "pod", "-l", "app=istiod", "--for=delete", "--timeout=60s")
    place.kubectl("rollout", "restart", "-n", MODEL, f"deployment/{world.CALLER}")
    place.sees("failed calling webhook", lambda: place.events("failed calling webhook"))
    place.leads("failed-calling-webhook", "does not inject")
    place.kubectl("scale", "-n", MESH, "deployment/istiod", "--replicas=1")
    place.kubectl("rollout", "status", "-n", MESH, "deployment/istiod", "--timeout=90s")
    place.rolled_out(f"deployment/{world.CALLER}")


def test_policy_of_another_team_denies_the_request(place):
    policy = world.refusing("no-shops", MODEL, "shop")
    with place.broken(*policy):
        attempt = ("run", "try", "-n", MODEL, "--image=x", "--labels=app=shop", "--dry-run=server")

        def is_in_effect():
            return "denied request" in place.node.testbed.kubectl(*attempt, check=False).stderr

        assert waiting.eventually(is_in_effect, 30)
        place.apply(pages_world.deployment("shop", MODEL, place.image, pages_world.FOR_EVER))
        place.sees("denied request", lambda: place.events("denied request"))
        line = "new pods of Deployment/shop are rejected: ValidatingAdmissionPolicy no-shops"
        place.leads("denied-the-request", line)
    place.kubectl("delete", "-n", MODEL, "deployment/shop")


def url(place):
    return f"http://kfp-ui.{MODEL}.svc:{world.PORT}/"


def test_policy_of_others_denies_access(place):
    with place.broken(workloads.istio("AuthorizationPolicy", "nobody", MODEL)):
        ask = lambda: place.inside(world.ASK, url(place))  # noqa: E731
        place.sees("RBAC: access denied", ask)
        place.leads("rbac-access-denied", "denies every caller")


def test_rule_that_speaks_tls_to_plain_text_breaks_connections(place):
    tls = {"host": "kfp-ui", "trafficPolicy": {"tls": {"mode": "SIMPLE"}}}
    rule = workloads.istio("DestinationRule", "tls", MODEL, **tls)
    with place.broken(rule):
        place.sees("upstream connect error", lambda: place.inside(world.ASK, url(place)))


def test_application_that_is_away_is_no_healthy_upstream(place):
    port = ingress_world.port_of("kubeflow-dashboard")
    place.kubectl("create", "service", "clusterip", "-n", MODEL, "away", f"--tcp={port}")
    script = ingress_world.ingress_script("kubeflow-dashboard", service="away")
    place.juju.fake_app("kubeflow-dashboard", {"ingress": script})
    place.juju.integrate(f"{APP}:ingress", "kubeflow-dashboard:ingress")
    place.says("3 routes served by")
    place.sees("no healthy upstream", lambda: place.visit("/x"))
    place.leads("no-healthy-upstream", "has no ready endpoint")
    place.juju.remove_application("kubeflow-dashboard")
    place.juju.wait_gone("kubeflow-dashboard")
    place.kubectl("delete", "service", "-n", MODEL, "away")


def test_route_to_no_gateway_is_not_found(place):
    http = [ingress_world.lead("/lost/", f"kfp-ui.{MODEL}", world.PORT)]
    lost = {"hosts": ["*"], "gateways": ["nowhere"], "http": http}
    with place.broken(workloads.istio("VirtualService", "lost", MODEL, **lost)):
        place.sees("404", lambda: place.visit("/lost/"))
        place.leads("404-at-the-gateway", f"Gateway {MODEL}/nowhere, which VirtualService")


def test_ingress_without_an_authorization_service_forbids_everything(place):
    ends = (f"{APP}:ingress-auth", "oidc-gatekeeper:ingress-auth")
    place.juju.remove_relation(*ends)
    try:
        place.sees("403", place.visit)
        line = "ingress is closed: authentication is missing"
        place.leads("403-at-the-gateway", line)
        assert "blocked: ingress is closed" in place.message()
    finally:
        place.juju.integrate(*ends)


def test_gateway_without_pods_refuses_connections(place):
    where = ("-n", istio.INGRESS, f"deployment/{istio.GATEWAY}")
    place.kubectl("scale", *where, "--replicas=0")

    def refused():
        try:
            return place.visit()
        except OSError as error:
            return str(error)

    place.sees("refused", refused)
    place.leads("connection-refused-at-the-gateway", "is not ready")
    place.kubectl("scale", *where, "--replicas=1")
    place.kubectl("rollout", "status", *where, "--timeout=90s")


def test_provider_that_is_away_has_people_go_round(place):
    stranger = place.browser()
    assert stranger.get("/pipeline/x").headers["location"] == echo.LOGIN
    # The page of the login is not there, so no session is created.
    assert stranger.get(echo.LOGIN).status == 404


def test_webhook_without_pods_leaves_the_first_request_without_network(place):
    quota = workloads.manifest("v1", "ResourceQuota", "full", MODEL, hard={"pods": "0"})
    profile = {"app.kubernetes.io/part-of": "kubeflow-profile", "istio-injection": "enabled"}
    place.apply(workloads.namespace("alice", profile))
    labels = ("-l", f"{names.COMPONENT}={names.WEBHOOK_COMPONENT}")
    with place.broken(quota):
        place.kubectl("delete", "pods", "-n", MODEL, *labels, "--now")
        annotations = {**workloads.CLASSIC, **workloads.SLOW_PROXY}
        asking = {"url": url(place), "annotations": annotations}
        job = workloads.first_request("notebook", "alice", place.image, **asking)
        place.apply(workloads.pod("notebook", "alice", job["spec"]["template"]))
        failed = lambda: place.state("main", "notebook", "alice") == "terminated"  # noqa: E731
        assert waiting.eventually(failed, 90)
        seen = place.kubectl("logs", "-n", "alice", "notebook", "-c", "main").splitlines()[-1]
        assert "refused" in seen, seen
        place.leads("a-notebook-without-network-at-its-start", "new pods are not prepared")
    place.kubectl("delete", "namespace", "alice")
    # The ReplicaSet tries again ever later, and Juju sends update-status each five minutes.
    place.kubectl("rollout", "restart", "deployment", "-n", MODEL, *labels)
    place.kubectl("rollout", "status", "deployment", "-n", MODEL, *labels, "--timeout=120s")
    place.touch()


def test_server_that_speaks_first_at_a_port_of_http_is_not_heard(place):
    greeter = pages_world.deployment("db", MODEL, place.image, ["python3", "-c", world.GREET])
    with place.broken(greeter, workloads.service("db", MODEL, 5432)):
        place.rolled_out("deployment/db")
        ask = lambda: place.inside(world.WAIT_FOR_GREETING, f"db.{MODEL}.svc", 5432)  # noqa: E731
        place.sees("Error", ask)


def test_certificate_that_somebody_else_writes_is_not_trusted(place):
    owner = names.name_owner(MODEL, APP)
    name = f"mutatingwebhookconfiguration/0-istio-integrator.{owner.lower()}"
    other = certificates.renew_if_due(None, ["x"], datetime.datetime.now(datetime.UTC))
    bundle = base64.b64encode(other.bundle.encode()).decode()
    entries = json.loads(place.kubectl("get", name, "-o", "json"))["webhooks"]
    patch = [
        {"op": "replace", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index in range(len(entries))
    ]
    over = threading.Event()

    def write():
        while not over.wait(0.2):
            with contextlib.suppress(Exception):
                place.kubectl("patch", name, "--type=json", "-p", json.dumps(patch))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        place.leads(
            "x509-certificate-signed-by-unknown-authority",
            "the webhook configuration does not trust the servers' certificate",
        )
    finally:
        over.set()
        writer.join()


def test_certificate_that_ended_is_shown_no_more(place):
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=400)
    old = certificates.renew_if_due(None, [gateway_client.HOST], long_ago)
    with place.broken(workloads.tls_secret("old", istio.INGRESS, old.certificate, old.key)):
        place.juju.config(APP, {"tls-secret": "old"})

        def ended():
            try:
                until = place.browser(tls=True).certificate().not_valid_after_utc
            except OSError as error:
                return str(error)
            return f"certificate has expired: {until:%Y-%m-%d}"

        place.sees("has expired", ended)
        heading = "x509-certificate-has-expired-or-is-not-yet-valid"
        place.leads(heading, "gateway (old): the certificate ended")
        place.juju.config(APP, {"tls-secret": ""})
        place.settle()


def test_application_that_is_trusted_no_more_is_forbidden(place):
    place.juju.trust(APP, remove=True)
    place.touch()
    place.sees("missing permission", place.message)
    place.leads("is-forbidden-user", "missing permissions: ")
    place.juju.trust(APP)
    place.touch()


def test_second_integrator_in_the_model_names_the_first(place):
    charm = place.node.charms.integrator
    given = {"config": charm.config, "resources": charm.resources, "trust": True}
    place.juju.deploy(charm.path, "second", **given)

    def said():
        units = place.juju.status()["applications"]["second"]["units"].values()
        return " ".join(each["workload-status"].get("message", "") for each in units)

    place.sees("manages namespace", said)
    place.leads("two-kubeflows-in-one-cluster", "manages namespace", unit="second/leader")
    place.juju.remove_application("second")
    place.juju.wait_gone("second")


def test_init_container_before_its_proxy_has_no_network(cni_node):
    with world.Place(cni_node, "early") as place:
        place.shell.run(pages_world.DEPLOY)
        place.juju.wait_for(APP, timeout=200)
        with place.broken(world.early("fetching", "early", place.image)):
            query = ("get", "pods", "-n", "early", "-l", "app=fetching", "--no-headers")
            place.sees("Init:Error", lambda: " ".join(place.kubectl(*query).split()))
            line = "init containers have no network before their classic proxy runs"
            place.leads("an-init-container-without-network", line)


def test_pod_that_does_not_go_is_named(place):
    labels = ("-n", MODEL, "-l", "app=held")
    place.juju.config(APP, {"mesh-mode": "none"})
    namespace = ("get", "namespace", MODEL, "-o", "jsonpath={.metadata.labels}")
    assert waiting.eventually(lambda: "istio-injection" not in place.kubectl(*namespace), 90)
    try:
        # A finalizer keeps its pod, and the record of that is made older by 900 s.
        with place.broken(world.held("held", MODEL, place.image)):
            place.rolled_out("statefulset/held")
            place.juju.config(APP, reset=("mesh-mode",))
            query = ("get", "pods", *labels, "--no-headers")
            place.sees("Terminating", lambda: " ".join(place.kubectl(*query).split()), 180)
            world.aged(place, 900, labels)
            place.leads("stuck-in-terminating", "is still terminating")
    finally:
        assert waiting.eventually(lambda: world.freed(place, labels), 60)
