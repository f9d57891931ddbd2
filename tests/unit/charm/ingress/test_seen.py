"""Which hosts open, and what the status says of the gateway, by what the workload saw."""

import dataclasses
import re

import ops
import pytest

from integrator_contract.seen import Cause, Expectation, Missing, Seen, Unseen
from istio_integrator import messages
from istio_integrator.ingress import gateway, record, seen

WANTED = ["kf.example.com", "ml.example.com"]
TARGET = gateway.Target(
    namespace="istio-ingress",
    selector={"istio": "ingress"},
    service="gw",
    workload="gw",
    http_port=80,
    https_port=443,
)


def opened(http, https):
    servers = [
        {"port": {"number": port}, "hosts": hosts} for port, hosts in ((80, http), (443, https))
    ]
    return {"spec": {"servers": servers}}


def expected(found, **changes):
    values = {
        "namespace": TARGET.namespace,
        "selector": TARGET.selector,
        "gateway": "kubeflow/kubeflow-gateway",
        "servers": seen.servers(TARGET, found, has_tls=True),
        "filters": ("guard",),
        "entry": "ask",
        "routes": 4,
        "marks": ("V",),
    }
    return Expectation(**{**values, **changes})


BEFORE = opened(["x.invalid"], ["x.invalid"])
HALF = opened(WANTED, ["x.invalid"])
AFTER = opened(WANTED, WANTED)


def answer(found, **values):
    return Seen(**{"of": expected(found).word(), "unseen": None, "is_late": True, **values})


@pytest.mark.parametrize(
    ("found", "values", "http", "https"),
    [
        pytest.param(BEFORE, {"guarded": (80, 443)}, WANTED, WANTED, id="guarded"),
        pytest.param(BEFORE, {"guarded": (80,)}, WANTED, [], id="one-port"),
        pytest.param(BEFORE, {"guarded": (80,), "unguarded": (443,)}, WANTED, [], id="one-not"),
        pytest.param(
            AFTER, {"guarded": (80,), "unguarded": (443,)}, WANTED, [], id="not-any-more"
        ),
        pytest.param(AFTER, {}, WANTED, WANTED, id="server-away"),
        pytest.param(AFTER, {"unseen": Unseen.FORBIDDEN}, WANTED, WANTED, id="not-seen-stays"),
        pytest.param(BEFORE, {"unseen": Unseen.UNREACHABLE}, [], [], id="not-seen-adds-none"),
        pytest.param(AFTER, {"of": "x", "unguarded": (80, 443)}, WANTED, WANTED, id="of-another"),
        pytest.param(BEFORE, {"of": "x", "guarded": (80, 443)}, [], [], id="of-another-adds-none"),
        pytest.param(
            opened([*WANTED, "old.example.com"], []),
            {"unseen": Unseen.NO_PODS},
            WANTED,
            [],
            id="unwanted",
        ),
    ],
)
def test_hosts_open_where_the_filters_were_seen(found, values, http, https):
    assert seen.open_hosts(expected(found), answer(found, **values), WANTED, "x.invalid") == {
        80: http or ["x.invalid"],
        443: https or ["x.invalid"],
    }


@pytest.mark.parametrize(("found", "hosts"), [(BEFORE, []), (HALF, WANTED)])
def test_without_an_answer_hosts_stay(found, hosts):
    result = seen.open_hosts(expected(found), None, WANTED, "x.invalid")
    assert result == {80: hosts or ["x.invalid"], 443: ["x.invalid"]}


@pytest.mark.parametrize(
    ("values", "is_gone"),
    [
        ({}, True),
        ({"unseen": Unseen.NO_PODS}, True),
        ({"is_open": True}, False),
        ({"unseen": Unseen.UNREACHABLE}, False),
    ],
)
def test_gateway_is_gone_once_no_envoy_has_a_virtual_host_of_it(values, is_gone):
    assert seen.is_gone(answer(AFTER, **values)) is is_gone
    assert not seen.is_gone(None)


def test_hidden_host_is_random_and_stays():
    assert seen.hidden_host(HALF) == "x.invalid"
    assert seen.hidden_host(AFTER).endswith(".invalid")
    assert seen.hidden_host(None) != seen.hidden_host(None)
    assert record.hide(seen.hidden_host(None)) == "(not shown).invalid"


def test_listeners_of_the_gateway_api_have_hosts_as_servers_do():
    listeners = [{"port": 80, "hostname": WANTED[0]}, {"port": 443}]
    found = seen.servers(TARGET, {"spec": {"listeners": listeners}}, has_tls=True)
    assert [server.hosts for server in found] == [(WANTED[0],), ("*",)]


def test_gateway_without_certificate_has_no_server_for_https():
    (only,) = seen.servers(TARGET, None, has_tls=False)
    assert (only.port, only.protocol, only.hosts) == (80, "HTTP", ())


def said(given, **changes):
    found = seen.messages(
        expected(AFTER), given, TARGET, count=2, application="istio", istiod="istio-system"
    )
    return [each.status(application="istio") for each in found]


WHERE = "istio-ingress/gw"
LOOKING = ops.WaitingStatus(f"looking whether gateway {WHERE} serves the routes")


@pytest.mark.parametrize(
    ("values", "status"),
    [
        pytest.param(
            {"routes": 4, "pods": 1, "ready": 1},
            ops.ActiveStatus(f"2 routes served by {WHERE}"),
            id="served",
        ),
        pytest.param(
            {"routes": 4, "pods": 5, "ready": 9},
            ops.ActiveStatus(f"2 routes served by {WHERE} (5/9 pods seen)"),
            id="sample",
        ),
        pytest.param({"routes": 3}, LOOKING, id="some"),
        pytest.param({"routes": 4, "of": "x"}, LOOKING, id="of-another"),
        pytest.param({"unseen": Unseen.NOT_YET}, LOOKING, id="not-yet"),
        pytest.param(
            {"unseen": Unseen.FORBIDDEN, "detail": "create pods/portforward in istio-ingress"},
            ops.BlockedStatus(
                "missing permission: create pods/portforward in istio-ingress; "
                "run: juju trust istio --scope=cluster"
            ),
            id="right",
        ),
        pytest.param(
            {"unseen": Unseen.UNREACHABLE, "detail": "refused"},
            ops.WaitingStatus(
                f"Envoy of {WHERE} is unreachable; run: kubectl -n istio-ingress get pods; refused"
            ),
            id="unreachable",
        ),
    ],
)
def test_status_says_what_was_seen(values, status):
    assert said(answer(AFTER, **values)) == [status]


def test_status_without_an_answer_promises_nothing():
    (status,) = said(None)
    assert isinstance(status, ops.WaitingStatus)
    assert "the workload does not answer" in status.message


def test_gateway_without_ready_pods_is_reported_elsewhere():
    assert said(answer(AFTER, unseen=Unseen.NO_PODS)) == []


ABOUT = {
    "port": "443",
    "words": "script load error",
    "secrets": "absent",
    "host": "kf.example.com",
    "by": "shop/web",
    "protocol": "HTTPS",
    "routes": "2 of 3",
    "domain": "corp.example",
    "home": "kubeflow",
    "service": "oidc-gatekeeper",
}


@pytest.mark.parametrize("cause", Cause)
def test_cause_and_command_are_visible(cause):
    lacking = answer(AFTER, missing=(Missing(cause=cause, about=ABOUT),), routes=4)
    (status,) = said(lacking)
    assert isinstance(status, ops.BlockedStatus)
    visible = status.message[: messages.VISIBLE]
    assert re.search(r"run: (kubectl -n \S+ \w+|kubectl get|juju run)", visible)
    assert "{" not in status.message
    (early,) = said(dataclasses.replace(lacking, is_late=False))
    assert early == LOOKING


def test_first_cause_is_said_and_the_others_counted():
    two = (
        Missing(cause=Cause.FILTERS_MISSING, about={"port": "443"}),
        Missing(cause=Cause.OTHER_DOMAIN, about={"domain": "x"}),
    )
    (status,) = said(answer(AFTER, missing=two))
    assert status.message == (
        "run: kubectl -n istio-ingress get envoyfilter; "
        f"port 443 of {WHERE} lacks this charm's filters; and 1 more"
    )
