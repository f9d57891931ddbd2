"""The guard of a named gateway in a real Envoy: authentication requests and backend requests."""

import contextlib
import dataclasses
import functools
import itertools
import json
import threading
from collections.abc import Iterator
from concurrent import futures

import httpx2
import pytest

from testbed import loopback
from tests import echo, forged_requests, gateway_client, oidc, waiting
from tests.functional import ingress_world, istiod_world, loopback_istiod
from tests.functional.ingress_world import (
    COMPLETE,
    DOMAIN,
    MODEL,
    OURS,
    WEB,
    frozen,
    gateway,
    lead,
    server,
    to,
    virtual_service,
)
from tests.gateway_client import HOST, TENANT
from tests.kubernetes_objects import made
from tests.unit.cases import cases
from tests.unit.charm.ingress_world import auth

COOKIE = echo.COOKIE
HEADER = "kubeflow-userid"
DASHED = "x-name-of-the-signed-user"
"""A header with so many dashes that routes overwrite it in two spellings only."""
HTTPS = {"hosts": HOST, "tls_secret": ingress_world.SECRET}
LIES = {
    "X-Forwarded-Uri": "/public",
    "X-Forwarded-Host": "elsewhere.example.com",
    "X-Forwarded-Method": "OPTIONS",
    "X-Forwarded-Proto": "gopher",
    "X-Forwarded-Prefix": "/public",
}
TOKENS = {"Authorization": "Bearer t", "X-Auth-Token": "t", "Cookie": COOKIE}
FORWARDS = ("", "/decisions")
"""Paths of an application on `forward-auth`."""


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory) -> Iterator[ingress_world.Place]:
    """The shared gateway, to which its istiod sends only the clusters that a route uses."""
    filtered = {"PILOT_FILTER_GATEWAY_CLUSTER_CONFIG": "true"}
    istiod = functools.partial(istiod_world.istiod, environment=filtered)
    folder = tmp_path_factory.mktemp("istiod")
    with ingress_world.serving(client, kubeconfig, folder, istiod=istiod) as found:
        yield found


def authenticate(place, path=None, **options):
    """Serve our host, authenticated by `ingress-auth` or by `forward-auth` at a path."""
    address = f"http://oidc.{MODEL}.svc.{DOMAIN}{path}"
    place.options = {**HTTPS, **options}
    place.auths = [COMPLETE] if path is None else []
    place.forwards = [] if path is None else [ingress_world.forward(address, HEADER, DASHED)]
    place.reconcile()
    place.eventually(200, Cookie=COOKIE)
    place.eventually(200, tls=HOST, Cookie=COOKIE)
    place.application.clear()
    place.asked.clear()
    return place


def test_session_that_the_service_renews_reaches_the_browser_beside_the_applications_own(place):
    authenticate(place)
    address = f"http://127.0.0.1:{place.port}/kfp/x"
    headers = {"Host": HOST, "Cookie": COOKIE}
    answer = httpx2.get(address, params={"cookie": "own=1"}, headers=headers)
    assert sorted(answer.headers.get_list("set-cookie")) == ["own=1", echo.RENEWED]


@cases(
    ("path", "asked", "user", "more"),
    ingress_auth_no_user=(None, "/public/x", None, ()),
    forward_auth=("", "/kfp/x", echo.USER, [f"{DASHED.replace('-', '_', 1)}: admin"]),
)
def test_name_that_a_client_claims_reaches_nobody(place, path, asked, user, more):
    authenticate(place, path)
    for claim in (*forged_requests.CLAIMS, *more):
        place.application.clear()
        head = forged_requests.head(asked, more=(f"Cookie: {COOKIE}", claim))
        answer = gateway_client.raw("127.0.0.1", head, place.port)
        assert answer.startswith(b"HTTP/1.1 200 "), claim
        (served,) = place.application
        assert served["headers"].get(HEADER) == user, claim
        assert "admin" not in json.dumps([served, place.asked]), claim


@pytest.mark.parametrize("path", FORWARDS)
def test_application_on_forward_auth_hears_the_truth_below_its_path_and_no_more(place, path):
    authenticate(place, path)
    for tls, more in itertools.product(("", HOST), ({}, TOKENS)):
        place.asked.clear()
        answer = place.asked_once("/kfp/x?a=b", tls=tls, **LIES, **more, **{"X-Secret": "s"})
        assert answer.status == (200 if more else 302)
        (asked,) = place.asked
        assert asked["path"] == f"{path}/kfp/x?a=b"
        headers = asked["headers"]
        assert headers["host"] == HOST
        assert not set(LIES.values()) & set(headers.values())
        told = {
            "x-forwarded-uri": "/kfp/x?a=b",
            "x-forwarded-host": HOST,
            "x-forwarded-method": "GET",
            "x-forwarded-proto": "https" if tls else "http",
            "x-secret": None,
            **{name.lower(): more.get(name) for name in TOKENS},
        }
        assert {name: headers.get(name) for name in told} == told


def warming(number):
    """A tenant's Gateway whose certificate never comes: the port's new listener waits for it."""
    tls = {"mode": "SIMPLE", "credentialName": f"missing-{number}"}
    return gateway("shop", "warming", server(443, ["w.example.com"], **tls))


@contextlib.contextmanager
def kept_up(place, obstacle):
    """An obstacle that is renewed: Envoy waits 15 seconds for a certificate."""
    ended = threading.Event()

    def renew():
        number = 0
        while not ended.wait(5):
            number += 1
            place.api.apply(obstacle(number))

    with place.there(obstacle(0)), futures.ThreadPoolExecutor(1) as threads:
        renewed = threads.submit(renew)
        try:
            yield
        finally:
            ended.set()
            renewed.result()


def has_warming(place):
    dump = "config_dump?resource=dynamic_listeners"
    return "warming_state" in istiod_world.administration(place.admin, dump)


def has_frozen(place):
    rejected = "stats?filter=http.*rds.*update_rejected&usedonly"
    found = istiod_world.administration(place.admin, rejected)
    return any(not line.endswith(": 0") for line in found.splitlines())


@cases(
    ("obstacle", "is_there", "statuses"),
    listener_kept_warming=(warming, has_warming, {"": {302}, HOST: {404, 0}}),
    routes_frozen=(frozen, has_frozen, {"": {404}, HOST: {302}}),
)
def test_authentication_that_a_tenant_holds_up_leaves_routes_closed(
    place, obstacle, is_there, statuses
):
    place.remove()
    place.options = {**HTTPS, "require_authentication": False}
    place.auths, place.forwards = [], []
    place.reconcile()
    for tls in statuses:
        place.eventually(200, tls=tls)
    with kept_up(place, obstacle):
        assert waiting.eventually(lambda: is_there(place))
        place.auths = [COMPLETE]
        place.reconcile()
        for tls, want in statuses.items():
            assert waiting.eventually(lambda tls=tls, want=want: place.status(tls=tls) in want)
            assert {place.status(tls=tls) for _ in range(20)} <= want

    def is_open_again():
        # The workload has a hook run for each change that it sees.
        place.reconcile()
        return all(place.status(tls=tls) == 302 for tls in statuses)

    assert waiting.eventually(is_open_again)
    for tls in statuses:
        place.eventually(200, tls=tls, Cookie=COOKIE)


def test_every_host_of_several_is_authenticated_and_no_host_of_a_neighbour(place):
    """A host of another team's Gateway is not authenticated, even within a wildcard of `hosts`."""
    inner = "theirs.kf.example.org"
    hosts = [HOST, "second.example.com", "*.kf.example.org"]
    authenticate(place, hosts=",".join(hosts))
    with place.there(
        gateway("shop", "inner", server(80, [inner])),
        virtual_service("shop", "inner", ["shop/inner"], [inner], to(WEB, "/kfp")),
    ):
        for host, tls in itertools.product([*hosts[:2], "a.kf.example.org"], (False, True)):
            asked = {"host": host, "tls": host if tls else ""}
            place.eventually(200, **asked, Cookie=COOKIE)
            place.eventually(302, **asked)
        assert place.eventually(200, host=inner).status == 200
        assert place.asked_once("/", host=TENANT).status == 200


@pytest.mark.parametrize(("count", "want"), [(56, 200), (64, 403)])
def test_headers_of_an_application_never_freeze_what_a_neighbour_changes(place, count, want):
    """Envoy refuses routes with more than 1,000 header entries; 56 make 900, and 64 make 1,028."""
    authenticate(place)
    names = [f"x-a-b-c-{number}" for number in range(count)]
    place.auths = [
        dataclasses.replace(auth(port=80, **{"allowed-response-headers": names}), id=COMPLETE.id)
    ]
    said = " ".join(place.reconcile())
    assert ("ingress-auth of oidc-gatekeeper: its response headers" in said) is (want == 403)
    place.eventually(want, Cookie=COOKIE)
    host = "later.example.com"
    with place.there(
        gateway("shop", "later", server(80, [host])),
        virtual_service("shop", "later", ["shop/later"], [host], to(WEB)),
    ):
        place.eventually(200, "/", host=host)


VICTIM = "victim@example.com"
KFP = f"kfp.{MODEL}.svc.{DOMAIN}"
MARK = "x-route"
"""The header by which a request shows that a tenant's route led it."""


def changing(how="set", name=HEADER, value=VICTIM):
    return {"headers": {"request": {how: {name: value, MARK: "theirs"}}}}


FORGED = changing()


@pytest.fixture
def shared(place):
    """The place with our routes, plain and with TLS, beside a neighbour."""
    return authenticate(place)


def split(host, path, **more):
    """Half of a route's traffic to each of two destinations, which say the same."""
    halves = [{**one, **more, "weight": 50} for one in (*lead(host), *lead(host))]
    halves[1]["destination"] = {"host": host.replace("kfp", "dashboard"), "port": {"number": 80}}
    return {**to(host, path), "route": halves}


ROUTES = {
    "/set": to(KFP, "/set", **FORGED),
    "/added": to(KFP, "/added", **changing("add")),
    "/upper": to(KFP, "/upper", **changing(name=HEADER.upper())),
    "/underscored": to(KFP, "/underscored", **changing(name="kubeflow_userid")),
    "/destination": {**to(KFP, "/destination"), "route": lead(KFP, **FORGED)},
    "/weighted": split(KFP, "/weighted", **FORGED),
    "/authority": to(KFP, "/authority", rewrite={"authority": "elsewhere.example"}, **FORGED),
    "/retried": to(KFP, "/retried", retries={"attempts": 3, "retryOn": "5xx"}, **FORGED),
    "/copied": to(KFP, "/copied", **changing(value="%REQ(x-forged)%")),
}


def arrived(place, path, **given):
    """Ask until the tenant's route is the one that answers."""

    def asked():
        answer = place.asked_once(path, **given)
        return getattr(answer, "status", 0) == 200 and MARK in answer.echo["headers"] and answer

    answer = waiting.eventually(asked)
    assert answer, place.asked_once(path, **given)
    return answer


def seen(served):
    """Return the identity headers of a request, in every spelling."""
    headers = served["headers"].items()
    return {name: value for name, value in headers if name.replace("_", "-") == HEADER}


@pytest.fixture
def theirs(shared):
    """A tenant's routes into the model, on our Gateway and on their own."""
    host = "tenant.example.com"
    own = gateway("shop", "own", server(80, [host]), server(443, [host], **ingress_world.HTTPS))
    on_ours = virtual_service("shop", "on-ours", [OURS], ["*"], *ROUTES.values())
    on_own = virtual_service("shop", "on-own", ["shop/own"], [host], *ROUTES.values())
    with shared.there(own, on_ours, on_own):
        arrived(shared, "/set", host=host)
        arrived(shared, "/set", host=host, tls=host)
        arrived(shared, "/set", Cookie=COOKIE)
        arrived(shared, "/set", tls=HOST, Cookie=COOKIE)
        yield shared, host


def test_forged_identity_by_a_route_on_our_gateway_arrives_as_what_the_service_said(theirs):
    place, _ = theirs
    for path, tls in itertools.product(ROUTES, ("", HOST)):
        for _ in range(4 if path == "/weighted" else 1):
            answer = place.asked_once(path, tls=tls, Cookie=COOKIE, **{"x-forged": VICTIM})
            assert answer.status == 200, path
            said = seen(answer.echo)
            assert said.pop("kubeflow_userid", "") == "", path
            assert said == {HEADER: echo.USER}, path


def test_forged_identity_by_a_gateway_of_their_own_arrives_as_nothing(theirs):
    place, host = theirs
    for path, tls in itertools.product(ROUTES, ("", host)):
        for claim in ({}, {HEADER: VICTIM}, {"kubeflow_userid": VICTIM}):
            answer = place.asked_once(path, host=host, tls=tls, **{"x-forged": VICTIM}, **claim)
            assert answer.status == 200, path
            assert not any(seen(answer.echo).values()), (path, claim)


def test_neighbours_use_of_the_header_towards_their_own_services_is_theirs(shared):
    host = "neighbour.example.com"
    objects = [
        gateway("shop", "use", server(80, [host])),
        virtual_service("shop", "use", ["shop/use"], [host], to(WEB, "/set", **FORGED), to(WEB)),
    ]
    with shared.there(*objects):
        answer = shared.eventually(200, "/set", host=host)
        assert seen(answer.echo) == {HEADER: VICTIM}
        answer = shared.eventually(200, "/x", host=host, **{HEADER: "theirs"})
        assert seen(answer.echo) == {HEADER: "theirs"}
        assert seen(shared.eventually(200, "/x", host=host).echo) == {}


MIRROR = to(WEB, "/mirrored", mirror={"host": KFP, "port": {"number": 80}}, **FORGED)
HANDED = {"match": [{"uri": {"prefix": "/handed"}}], "delegate": {"name": "on"}}
ALIAS = {"type": "ExternalName", "externalName": KFP, "ports": [{"name": "http", "port": 80}]}
AROUND = {
    "/mirrored": [virtual_service("shop", "mirror", [OURS], ["*"], MIRROR)],
    "/handed": [
        virtual_service("shop", "on", [], [], {"route": lead(KFP), **FORGED}),
        virtual_service("shop", "handing", [OURS], [HOST], HANDED),
    ],
    "/alias": [
        made("v1", "Service", "alias", "shop", ALIAS),
        virtual_service(
            "shop", "alias", [OURS], ["*"], to(f"alias.shop.svc.{DOMAIN}", "/alias", **FORGED)
        ),
    ],
}
"""Other ways than a route to a Service of the model on our host: a copy, a delegate, a name."""


@pytest.mark.parametrize("path", AROUND)
def test_no_other_way_to_a_service_of_the_model_says_another_user_at_our_host(shared, path):
    with shared.there(*AROUND[path]):
        arrived(shared, path, Cookie=COOKIE)
        served = waiting.eventually(
            lambda: [each for each in shared.application if each["path"] == path]
        )
        assert served
        assert [seen(each) for each in served] == [{HEADER: echo.USER}] * len(served)


CALLER = f"oauth2-proxy.{MODEL}.svc.{DOMAIN}"
LENIENT = "x-auth-request-email"
"""The header by which oauth2-proxy-k8s names the user."""


@pytest.fixture(scope="module", params=[HEADER, LENIENT], ids=["kubeflow-userid", "as the charm"])
def machines(place, request, tmp_path_factory):
    """Serve the model behind a real oauth2-proxy that checks tokens, and return their issuer.

    It is configured to set Kubeflow's header, or by the variables that its charm sets.
    """
    folder = tmp_path_factory.mktemp("oauth2-proxy")
    (port,) = loopback.free_ports(1)
    bearer = ("--skip-jwt-bearer-tokens", "--bearer-token-login-fallback=false")
    with oidc.issuing() as issuer:
        argv, variables = [oidc.program()], oidc.of_charm(port, issuer.url)
        if request.param == HEADER:
            url = f"--redirect-url=https://{HOST}{oidc.PREFIX}/callback"
            known = oidc.of_issuer(issuer.url)
            argv, variables = oidc.command(folder, port, url, *bearer, **known), {}
        with (
            loopback_istiod.process(argv, folder / "log", variables),
            place.there(*ingress_world.service(MODEL, "oauth2-proxy", port)),
        ):
            with contextlib.closing(gateway_client.Client(port=port)) as client:
                is_alive = waiting.eventually(lambda: client.get("/ping").status == 200)
            assert is_alive, (folder / "log").read_text()
            authenticate(place)
            place.auths = []
            place.forwards = [ingress_world.forward(f"http://{CALLER}", LENIENT)]
            place.reconcile()
            yield issuer, request.param


JSON, PAGE = {"Accept": "application/json"}, {"Accept": "text/html"}
STRANGER = oidc.new_key()


def bearer(**changed):
    """A machine's request with a token of the issuer, in which claims are changed."""
    return lambda issuer: {**JSON, "Authorization": f"Bearer {issuer.token(**changed)}"}


def tampered(issuer):
    """A machine's request with a token whose claims were changed after it was signed."""
    _, claims, _ = issuer.token(email=VICTIM).split(".")
    head, _, signature = issuer.token().split(".")
    return {**JSON, "Authorization": f"Bearer {head}.{claims}.{signature}"}


@cases(
    ("asks", "want", "user"),
    no_token=(lambda _: JSON, 401, None),
    forged_signature=(bearer(key=STRANGER), 403, None),
    changed_after_it_was_signed=(tampered, 403, None),
    no_algorithm=(bearer(algorithm="none"), 403, None),
    different_algorithm=(bearer(algorithm="HS256"), 403, None),
    expired=(bearer(exp=1), 403, None),
    without_an_end=(bearer(exp=None), 403, None),
    not_valid_yet=(bearer(nbf=2**33), 403, None),
    wrong_audience=(bearer(aud="grafana"), 403, None),
    no_audience=(bearer(aud=None), 403, None),
    other_issuer=(bearer(iss="https://elsewhere.example.com"), 403, None),
    unverified_email=(bearer(email_verified=False), 403, None),
    no_JWT=(lambda _: {**JSON, "Authorization": "Bearer x"}, 403, None),
    right_token=(bearer(), 200, oidc.MACHINE),
    two_audiences=(bearer(aud=["grafana", oidc.CLIENT]), 200, oidc.MACHINE),
    client_without_email=(bearer(email=None), 200, "pipeline-7"),
    browser_without_a_session=(lambda _: PAGE, 302, None),
    cookie_of_another_service=(lambda _: {"Cookie": COOKIE}, 302, None),
)
def test_machine_reaches_the_model_by_a_token_of_the_issuer_alone(
    place, machines, asks, want, user
):
    issuer, header = machines
    for tls in ("", HOST):
        place.eventually(200, tls=tls, **bearer()(issuer))
        place.application.clear()
        claims = {HEADER: "admin", LENIENT: "admin"}
        answer = place.asked_once("/kfp/apis/v2beta1/runs", tls=tls, **claims, **asks(issuer))
        assert answer.status == want, answer
        served = [each["headers"] for each in place.application]
        assert [each.get(header) for each in served] == ([user] if want == 200 else [])
        assert all(each["authorization"].startswith("Bearer ey") for each in served)
        assert "admin" not in json.dumps(place.application)
        if want == 302:
            location = {name.lower(): value for name, value in answer.headers.items()}["location"]
            assert location.startswith(f"{issuer.url}/authorization?")
