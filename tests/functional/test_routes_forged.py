"""Ways around the guard of today's charms' routes, tried at a real Envoy led by a real istiod."""

import concurrent.futures
import contextlib
import json

import pytest
from charmlibs.interfaces import istio_ingress_route as library

from tests import echo, forged_requests, gateway_client, http2, waiting
from tests.functional import renderers
from tests.functional.newer_routes import OPEN, bag, matched, rewritten, wish
from tests.functional.renderers import HOST, SCHEMES

HOLE = "/pipeline/hole"
"""What is open to everybody in the midst of what is not, for one method."""
KINDS = ("kubeflow-userid", "kubeflow-groups")
BOTH = pytest.mark.parametrize(
    ("tls", "known"),
    [
        pytest.param("", False, id="http-stranger"),
        pytest.param(HOST, True, id="https-known"),
        pytest.param("", True, id="http-known", marks=pytest.mark.long),
        pytest.param(HOST, False, id="https-stranger", marks=pytest.mark.long),
    ],
)


@pytest.fixture(scope="module", params=renderers.SERVING)
def place(request, client, kubeconfig, tmp_path_factory):
    """A model with routes of both endpoints, each of every kind that there is."""
    exact = library.HTTPPathMatchType.Exact
    newer = [
        bag(1, "kubeflow-dashboard", wish("dashboard", matched("/"))),
        bag(
            2,
            "kfp-ui",
            wish("kfp", matched("/pipeline/"), matched("/exactly", exact)),
            wish("kfp", matched("/moved"), filters=[rewritten("/pipeline")]),
        ),
        bag(3, "dex-auth", wish("login", matched("/open/")), endpoint=OPEN),
        bag(
            4,
            "pages",
            wish("login", matched(HOLE, exact)),
            wish("login", matched("/pages/")),
            endpoint=OPEN,
        ),
    ]
    with contextlib.ExitStack() as stack:
        login = stack.enter_context(echo.serving(echo.Application))
        services = [("login", 80, login.server_port)]
        folder = tmp_path_factory.mktemp("istiod")
        found = stack.enter_context(
            renderers.serving(
                request.param, client, kubeconfig, folder, newer=newer, services=services
            )
        )
        found.login = login.asked
        for tls in ("", HOST):
            assert waiting.eventually(lambda tls=tls: serves(found, tls), 90)
        yield found


def serves(place, tls):
    """Tell whether Envoy has all of the routes."""
    known = {"path": forged_requests.TARGET, "Cookie": echo.COOKIE}
    asked = [known, {"path": "/open/x"}, {"path": HOLE}, {"path": "/pages/one"}]
    answers = [place.asked_once(tls=tls, **given) for given in asked]
    return {getattr(answer, "status", 0) for answer in answers} == {200}


@pytest.fixture(autouse=True)
def forgotten(place):
    """Nothing asked yet."""
    for asked in (place.application, place.login, place.asked):
        asked.clear()


def port(place, tls):
    return place.https_port if tls else place.port


def identities(asked):
    """Whom requests were from, in any spelling of the headers that say so."""
    return {
        value
        for one in asked
        for name, value in one["headers"].items()
        if name.replace("_", "-") in KINDS and value
    }


def is_open(asked):
    """Tell whether somebody may be asked this without having logged in."""
    path = asked["path"].partition("?")[0]
    return path in ("/open", HOLE) or path.startswith(("/open/", "/pages/"))


def opened(text):
    """Write a request of the table for what is open here; the service itself opens `/dex`."""
    return text.replace("/dex", "/open")


def judge(place, *, known):
    """Say what no way to write a request leads to."""
    if not known:
        assert place.application == []
    assert identities(place.application) <= {echo.USER}
    assert identities(place.login) == set()
    assert identities(place.asked) == set()
    assert all(map(is_open, place.login)), place.login


@SCHEMES
def test_claim_of_a_client_reaches_no_application_of_either_endpoint(place, tls):
    open_paths = ("/open/auth", HOLE, "/pages/one")
    for claim in forged_requests.CLAIMS:
        for path in (forged_requests.TARGET, "/exactly", "/moved/x", "/x", *open_paths):
            head = forged_requests.head(path, more=(f"Cookie: {echo.COOKIE}", claim))
            answer = gateway_client.raw("127.0.0.1", head, port(place, tls), tls=tls)
            assert answer.startswith(b"HTTP/1.1 200 "), (claim, path)
    assert len(place.application) == 4 * len(forged_requests.CLAIMS)
    assert {one["headers"]["kubeflow-userid"] for one in place.application} == {echo.USER}
    assert len(place.login) == len(open_paths) * len(forged_requests.CLAIMS)
    assert "admin" not in json.dumps([place.application, place.login, place.asked])
    judge(place, known=True)


@BOTH
def test_no_way_to_write_a_request_leads_past_the_guard(place, tls, known):
    heads = [forged_requests.head(path) for path in forged_requests.PATHS]
    heads += [param.values[0] for param in forged_requests.HEADS]
    claims = "".join(f"{claim}\r\n" for claim in forged_requests.CLAIMS)
    if known:
        claims += f"Cookie: {echo.COOKIE}\r\n"
    for head in heads:
        text = opened(head).replace("\r\n\r\n", f"\r\n{claims}\r\n", 1)
        answer = gateway_client.raw("127.0.0.1", text, port(place, tls), tls=tls)
        assert answer.startswith(b"HTTP/1."), head
    judge(place, known=known)
    assert bool(place.application) is known


@BOTH
def test_no_frames_of_http_2_lead_past_the_guard(place, tls, known):
    more = [("cookie", echo.COOKIE)] if known else []

    def ask(fields):
        with http2.Client(port(place, tls), tls=tls, timeout=2) as client:
            client.ask([*fields, *more])

    asked = [
        [(name, opened(value)) for name, value in param.values[0]]
        for param in forged_requests.FRAMES
    ]
    # Some get no answer at all, and are waited for side by side.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, asked))
    judge(place, known=known)
    assert bool(place.application) is known
    assert place.login


@SCHEMES
def test_trailers_of_a_request_claim_nothing(place, tls):
    sent = forged_requests.fields(method="POST", more=[("cookie", echo.COOKIE)])
    with http2.Client(port(place, tls), tls=tls) as client:
        number = client.begin([*sent, ("content-length", "1")], ends=False)
        client.send(number, b"x")
        client.end(number, [("kubeflow-userid", "admin"), ("kubeflow_groups", "admin")])
        assert client.until(number).status == 200
    assert identities(place.application) == {echo.USER}
    judge(place, known=True)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", path) for path in ("/pipeline", "/pipelines", "/pipeline;x", "/pipeline%2fx")),
        *(("GET", path) for path in ("/opener", "/open;x", "/OPEN/x", "/open%2f", "/open/../x")),
        *(("GET", f"{HOLE}{more}") for more in ("/", "s", ";x", "%00", "%20")),
        *(("GET", path) for path in ("/x/pages/one", "//pages/one", "/pages%2fone")),
    ],
)
def test_next_to_what_is_open_somebody_is_asked(place, method, path):
    more = (*forged_requests.CLAIMS, "Content-Length: 0")
    head = forged_requests.head(path, method=method, more=more)
    answer = gateway_client.raw("127.0.0.1", head, place.port)
    assert answer.split()[1] in (b"302", b"400", b"403"), answer
    assert place.login == []
    judge(place, known=False)
