"""Which hosts open, and what the status says of the gateway, by what the workload saw."""

import dataclasses
import re
import time

import pytest

from integrator_contract import refusals
from integrator_contract.seen import Cause, EnvoyState, MissingPart, ReadFailure
from istio_integrator import messages
from tests import asked
from tests.unit.cases import cases
from tests.unit.charm.charm_world import results
from tests.unit.charm.ingress_world import auth, route, secret

HOSTS = ["kf.example.com", "ml.example.com"]
WHERE = "istio-ingress/istio-ingressgateway"


@pytest.fixture
def world(world):
    """A model that is served with HTTPS at two hosts."""
    world.related = [route(), route("dex-auth"), auth()]
    world.config = {"hosts": ",".join(HOSTS), "tls_secret": "tls"}
    secret(world.fake, "tls", "istio-ingress")
    return world


@pytest.fixture(autouse=True)
def seen_nothing():
    asked.SERVICE.seen = EnvoyState(of="")


def sees(world, out, **values):
    """Set the report of the workload about the gateway, and run the next hook."""
    word = results(world.ctx, out).expected.digest()
    asked.SERVICE.seen = EnvoyState(**{"of": word, "unseen": None, "is_late": True, **values})
    return world.hook()


def opened(world):
    """The hosts of our Gateway at each port, without the one that no client asks for."""
    return [
        [host for host in server["hosts"] if not host.startswith("x-")]
        for server in world.gateway()["spec"]["servers"]
    ]


@cases(
    ("is_open", "values", "http", "https"),
    guarded=(False, {"guarded": (80, 443)}, HOSTS, HOSTS),
    one_port=(False, {"guarded": (80,)}, HOSTS, []),
    one_not=(False, {"guarded": (80,), "unguarded": (443,)}, HOSTS, []),
    not_any_more=(True, {"guarded": (80,), "unguarded": (443,)}, HOSTS, []),
    server_away=(True, {}, HOSTS, HOSTS),
    not_seen_stays=(True, {"unseen": ReadFailure.FORBIDDEN}, HOSTS, HOSTS),
    not_seen_adds_none=(False, {"unseen": ReadFailure.UNREACHABLE}, [], []),
    of_another=(True, {"of": "x", "unguarded": (80, 443)}, HOSTS, HOSTS),
    of_another_adds_none=(False, {"of": "x", "guarded": (80, 443)}, [], []),
)
def test_hosts_open_where_the_filters_were_seen(world, is_open, values, http, https):
    sees(world, world.run() if is_open else world.hook(), **values)
    assert opened(world) == [http, https]


def test_without_an_answer_hosts_stay_and_none_is_added(world, monkeypatch, caplog):
    world.hook()
    hidden = world.gateway()["spec"]["servers"][0]["hosts"]
    assert opened(world) == [[], []]
    world.hook()
    assert world.gateway()["spec"]["servers"][0]["hosts"] == hidden
    world.run()
    monkeypatch.setattr(asked.SERVICE, "says", lambda **_: asked.SERVICE.fails(502, ""))
    world.config["hosts"] = f"{HOSTS[1]},new.example.com"
    status = world.hook().unit_status
    assert opened(world) == [[HOSTS[1]], [HOSTS[1]]]
    assert status.name == "waiting"
    assert f"gateway {WHERE} is not seen: the workload does not answer" in caplog.text


@cases(
    ("values", "seconds"),
    no_virtual_host=({}, 0),
    no_pods=({"unseen": ReadFailure.NO_PODS}, 0),
    open=({"is_open": True}, 10),
    unreachable=({"unseen": ReadFailure.UNREACHABLE}, 10),
    not_looked_yet=({"unseen": ReadFailure.NOT_YET}, 10),
)
@pytest.mark.parametrize("is_removed", [True, False], ids=["removal", "another-gateway"])
def test_guard_goes_once_no_envoy_has_a_virtual_host_of_the_gateway(  # noqa: PLR0917 - a table
    world, monkeypatch, tmp_path, values, seconds, is_removed
):
    world.files = tmp_path
    world.run()
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    asked.SERVICE.seen = EnvoyState(**{"of": "", "unseen": None, **values})
    world.fake.writes.clear()
    if is_removed:
        world.remove()
    else:
        world.config["gateway_service"] = ""
        world.hook()
    assert sum(waited) == seconds
    assert world.guard() is None
    deleted = [each.split()[1] for each in world.fake.writes if each.startswith("delete")]
    assert deleted.index("gateways") < deleted.index("envoyfilters")


REFUSAL = refusals.Refusal(author="ValidatingAdmissionPolicy no-forwards", words="ask us")
REFUSED = f"{REFUSAL.author} refuses port-forwards to pods in istio-ingress"
TRUST, PODS = "run: juju trust mesh-2 --scope=cluster", "run: kubectl -n istio-ingress get pods"
SERVED = f"2 routes served by {WHERE}"
LOOKING = "waiting", f"looking whether gateway {WHERE} serves the routes"


@cases(
    ("values", "said"),
    served=({"routes": 3, "pods": 1, "ready": 1}, ("active", SERVED)),
    sample=({"routes": 2, "pods": 5, "ready": 9}, ("active", f"{SERVED} (5/9 pods seen)")),
    some=({"routes": 1}, LOOKING),
    of_another=({"routes": 2, "of": "x"}, LOOKING),
    missing_of_another=(
        {"missing": (MissingPart(cause=Cause.CLUSTER_MISSING),), "of": "x"}, LOOKING,
    ),
    not_yet=({"unseen": ReadFailure.NOT_YET}, LOOKING),
    right=(
        {"unseen": ReadFailure.FORBIDDEN, "detail": "create pods/portforward"},
        ("blocked", f"missing permission: create pods/portforward; {TRUST}"),
    ),
    unreachable=(
        {"unseen": ReadFailure.UNREACHABLE, "detail": "refused"},
        ("waiting", f"Envoy of {WHERE} is unreachable; {PODS}; refused"),
    ),
    large=({"unseen": ReadFailure.TOO_LARGE}, ("waiting", f"{WHERE} is too large; {PODS}")),
    refused=(
        {"unseen": ReadFailure.UNREACHABLE, "refusal": REFUSAL},
        ("blocked", f"{REFUSED}; ask us; {WHERE} is not seen"),
    ),
    # A gateway without ready pods is reported elsewhere.
    no_pods=({"unseen": ReadFailure.NO_PODS}, ("active", "1/1 pods in mesh")),
)  # fmt: skip
def test_status_says_what_was_seen(world, values, said):
    status = sees(world, world.run(), **values).unit_status
    assert (status.name, status.message.endswith(said[1])) == (said[0], True), status
    assert ("served by" in status.message) is (said[0] == "active" and "routes" in values)


ABOUT = {
    "port": 443,
    "words": "script load error",
    "secrets": "absent",
    "host": "kf.example.com",
    "by": "shop/web",
    "protocol": "HTTPS",
    "routes": "2 of 3",
    "domain": "corp.example",
    "home": "kf",
    "service": "oidc-gatekeeper",
}


@pytest.mark.parametrize("cause", Cause)
def test_cause_and_command_are_visible(world, cause):
    out = world.run()
    missing = (MissingPart(cause=cause, **ABOUT),)
    late = sees(world, out, missing=missing, routes=2).unit_status
    largest = {"routes": "kf/mesh-2-routes (1 kB)"} if cause is Cause.ROUTES_UNREAD else {}
    place = {"gateway": WHERE, "namespace": "istio-ingress", "istiod": "istio-system"}
    want = messages.Template[cause.name](**{**ABOUT, **place, **largest, "others": ""})
    assert late == want.to_status(application="mesh-2")
    assert late.name == "blocked"
    visible = late.message[: messages.VISIBLE]
    assert re.search(r"run: (kubectl -n \S+ \w+|kubectl get|juju run)", visible)
    asked.SERVICE.seen = dataclasses.replace(asked.SERVICE.seen, is_late=False)
    early = world.hook().unit_status
    assert (early.name, early.message) == LOOKING


@cases(
    ("own", "words", "said"),
    of_the_cause=("bad weight", "bad regex", "bad weight"),
    known=("", "bad regex", "bad regex"),
    unknown=("", "", "the log has its words"),
)
def test_words_of_envoy_about_routes_follow_the_command(world, own, words, said):
    missing = (MissingPart(cause=Cause.ROUTES_MISSING, **{**ABOUT, "words": own}),)
    status = sees(world, world.run(), missing=missing, words=words).unit_status
    assert f"Envoy refuses all routes for one with an error: {said}" in status.message


def test_largest_virtual_services_are_named_while_routes_are_too_large(world):
    out = world.run()
    kubeflow, every = ["kf/kubeflow-gateway"], ["mesh", "shop/web"]
    gateways = {"small": kubeflow, "pipelines": every, "inside": ["mesh"], "no": [], "web": every}
    for number, (name, bound) in enumerate(gateways.items(), 1):
        rule = {"match": [{"uri": {"prefix": "/" + "x" * 10_000 * number}}]}
        spec = {"gateways": bound, "hosts": ["*"], "http": [rule]}
        world.fake.put("VirtualService", name, "kf-user", spec=spec)
    missing = (MissingPart(cause=Cause.ROUTES_UNREAD),)
    status = sees(world, out, missing=missing, guarded=(80, 443)).unit_status
    assert status.name == "blocked"
    largest = "kf-user/web (50 kB), kf-user/pipelines (20 kB), kf-user/small (10 kB)"
    assert status.message.endswith(f"the largest: {largest}")
    assert opened(world) == [HOSTS, HOSTS]


def test_first_cause_is_said_and_the_others_counted(world):
    causes = (Cause.FILTERS_MISSING, Cause.OTHER_DOMAIN)
    two = tuple(MissingPart(cause=each, port=443, domain="x") for each in causes)
    assert sees(world, world.run(), missing=two).unit_status.message == (
        "run: kubectl -n istio-ingress get envoyfilter; "
        f"port 443 of {WHERE} lacks this charm's filters; and 1 more"
    )
