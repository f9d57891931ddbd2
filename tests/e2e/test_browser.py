"""A person with a browser signs in through the gateway, and uses two applications and a notebook.

What a person sees of each step is kept in build/e2e/browser. The provider is at another site than
the applications, as those of companies are.
"""

import re

import pytest

from testbed import istio
from tests import gateway_client, waiting
from tests.e2e import browser_world
from tests.e2e import ingress_world as world

MODEL = "people"
APP = world.APP
ANA, BEN = "ana@example.com", "ben@example.com"
AUTHENTICATES = "oauth2-proxy"
APPLICATIONS = {
    "notebooks": {"arguments": "9000 --pages", "prefix": "/notebooks/"},
    "dashboard": {"arguments": "9001 --pages", "prefix": "/"},
}
ENDPOINTS = {"notebooks": "ingress", "dashboard": "istio-ingress-route"}
WAY_IN = [302, 302, 200]
"""From the provider's form to the service, from there to what was asked for."""
pytestmark = [pytest.mark.cluster("tomorrow"), pytest.mark.long, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def provider(node):
    """Where people say who they are."""
    with browser_world.provider(node.testbed) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def model(node, sdi_charm, provider, tmp_path_factory):
    """Two applications, a notebook beside them, and who is to be asked; all closed yet."""
    folder = tmp_path_factory.mktemp("oauth2-proxy")
    with (
        world.shared(node, MODEL) as found,
        browser_world.authenticating(node.testbed, provider, folder, MODEL) as service,
    ):
        secret, _ = world.tls_secret(istio.INGRESS, "people-tls")
        found.apply(secret, world.notebook(MODEL), *service)
        # What comes before it would be replaced for its sidecar's sake.
        found.deploy(node.charms.integrator)
        found.juju.config(APP, {"tls-secret": "people-tls", "https-redirect": True})
        resources = {"server-image": node.charms.payload_image}
        for name, options in APPLICATIONS.items():
            found.juju.deploy(sdi_charm, name, config=options, resources=resources)
        for name in APPLICATIONS:
            found.juju.wait_for(name)
        asked = browser_world.SERVICE, browser_world.SERVICE_PORT
        script = {
            "ingress-auth": world.auth_script(*asked),
            "forward-auth": world.forward_script(MODEL, *asked),
        }
        found.juju.fake_app(AUTHENTICATES, script)
        for name, endpoint in ENDPOINTS.items():
            found.juju.integrate(f"{APP}:{endpoint}", f"{name}:{endpoint}")
        yield found


@pytest.fixture(scope="module", params=["ingress-auth", "forward-auth"])
def place(request, model):
    """The model, open to who has signed in, over either relation."""
    relation = f"{APP}:{request.param}", f"{AUTHENTICATES}:{request.param}"
    model.says("ingress is closed")
    model.juju.integrate(*relation)
    model.says(f"2 routes served by {world.SHARED}", 240)
    stranger = model.browser(tls=True)
    for path in ("/notebooks/", "/", "/notebook/"):
        assert waiting.eventually(lambda path=path: stranger.get(path).status == 302, 60), path
    yield model
    model.juju.remove_relation(*relation)


@pytest.fixture(scope="module")
def browser(model, tmp_path_factory):
    """A browser, which people use one after the other."""
    folder = tmp_path_factory.mktemp("browser")
    with browser_world.chromium(model.node.testbed, model.address, folder) as found:
        yield found


@pytest.fixture
def person(request, place, browser):
    """Somebody who was never here."""
    name = request.node.name.removeprefix("test_")
    somebody = browser_world.Person(browser, re.sub(r"\W+", "-", name).strip("-"))
    yield somebody
    somebody.context.close()


@pytest.fixture
def ana(person):
    """Somebody who has signed in."""
    person.visit("/notebooks/")
    assert person.sign_in(ANA).user == ANA
    return person


def is_asked_who(seen, provider):
    """Whether a person sees the provider's form, after one redirect."""
    return seen.url.startswith(f"{provider}/") and seen.way == [302, 200]


def test_link_leads_over_the_sign_in_to_what_it_says(person, provider):
    link = "notebooks/ana/lab?file=a%20b.ipynb&line=3"
    asked = person.visit(f"http://{gateway_client.HOST}/{link}")
    assert asked.url.startswith(f"{provider}/")
    # From HTTP to HTTPS, and from there to the provider.
    assert asked.way == [301, 302, 200]
    seen = person.sign_in(ANA)
    assert seen.way == WAY_IN
    assert seen.url == f"{browser_world.ORIGIN}/{link}"
    assert (seen.title, seen.user) == ("notebooks-0", ANA)
    assert seen.asked == f"GET /{link}"


def test_second_tab_and_second_application_ask_no_more(ana):
    ana.new_tab()
    again = ana.visit("/notebooks/other")
    assert (again.way, again.title, again.user) == ([200], "notebooks-0", ANA)
    ana.new_tab()
    other = ana.visit("/")
    assert (other.way, other.title, other.user) == ([200], "dashboard-0", ANA)


def test_who_signs_out_is_asked_again_by_both_applications_in_every_tab(ana, provider):
    first = ana.tab
    ana.new_tab()
    ana.visit("/")
    left = ana.press(link="Sign out")
    assert left.url.startswith(f"{provider}/")
    # Out, to the front page, from there to the provider.
    assert left.way == [302, 302, 200]
    assert is_asked_who(ana.visit("/"), provider)
    ana.tab = first
    assert is_asked_who(ana.visit("/notebooks/"), provider)
    seen = ana.sign_in(BEN)
    assert (seen.way, seen.title, seen.user) == (WAY_IN, "notebooks-0", BEN)


def test_session_that_ended_leads_over_the_sign_in_back_to_the_page(ana, provider):
    ana.end_session()
    assert is_asked_who(ana.visit("/data?of=ana"), provider)
    seen = ana.sign_in(ANA)
    assert (seen.way, seen.title, seen.user) == (WAY_IN, "dashboard-0", ANA)
    assert seen.asked == "GET /data?of=ana"
    assert ana.visit("/notebooks/").way == [200]


@pytest.mark.parametrize("who", [ANA, BEN])
def test_form_sent_after_the_session_ended_is_nobodys_and_its_page_comes_back(ana, provider, who):
    kept = ana.keep("before").kept
    ana.end_session()
    assert is_asked_who(ana.keep("lost"), provider)
    seen = ana.sign_in(who)
    assert (seen.way, seen.title, seen.user) == (WAY_IN, "notebooks-0", who)
    # The page that the form was on its way to is asked for anew, without what was sent.
    assert (seen.asked, seen.kept) == ("GET /notebooks/", kept)
    again = ana.keep("again")
    assert (again.way, again.kept) == ([200], f"{kept}\n{who}: again")


def test_script_gets_no_answer_when_the_session_has_ended(ana):
    assert ana.tab.evaluate(browser_world.FETCH, "/") == 200
    ana.end_session()
    assert ana.tab.evaluate(browser_world.FETCH, "/") == "no answer"


def test_notebook_talks_with_who_has_signed_in_and_opens_for_nobody_else(ana, browser):
    kernel = f"wss://{gateway_client.HOST}/notebook/api/kernels/1/channels"
    assert ana.tab.evaluate(browser_world.TALK, kernel) == "1 + 1"
    ana.see()
    ana.end_session()
    # What is open was let in; what is new is not.
    assert ana.tab.evaluate(browser_world.TALK_ON, "2 + 2") == "2 + 2"
    assert ana.tab.evaluate(browser_world.TALK, kernel) == "refused"
    stranger = browser_world.Person(browser, "stranger")
    stranger.visit("/notebooks/")
    assert stranger.tab.evaluate(browser_world.TALK, kernel) == "refused"
    stranger.context.close()
