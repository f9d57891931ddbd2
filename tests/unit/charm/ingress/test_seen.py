"""What the gateway should have, and what the status says by what the workload saw."""

import dataclasses
import re

import ops
import pytest

from integrator_contract.seen import Cause, Expectation, Missing, Seen, Unseen
from istio_integrator import messages
from istio_integrator.ingress import authorization, gateway, routes, seen

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
        "routes": 4,
        "marks": ("V",),
    }
    return Expectation(**{**values, **changes})


AFTER = opened(WANTED, WANTED)


def answer(found, **values):
    return Seen(**{"of": expected(found).word(), "unseen": None, "is_late": True, **values})


def test_expectation_names_clusters_and_counts_matches():
    uris = (routes.Uri("exact", "/kfp"), routes.Uri("prefix", "/kfp/"))
    backend = routes.Backend("kfp.kubeflow.svc.cluster.local", 8080)
    route = routes.Route(
        name="kfp",
        source="ingress:1 kfp",
        application="kfp",
        relation=1,
        place=0,
        kind=routes.Kind.PREFIX,
        path="/kfp",
        entries=(routes.Entry(uris=uris), routes.Entry(uris=uris[:1])),
        backends=(backend,),
    )
    service = authorization.Service(host="oidc.kubeflow.svc.cluster.local", port=80)

    def expectation(service, target):
        return seen.expect(
            target,
            None,
            [route],
            service,
            model="kubeflow",
            has_tls=True,
            filters=("guard",),
            marks=("V",),
        )

    found = expectation(service, TARGET)
    assert found.routes == 3
    assert set(found.clusters) == {
        "outbound|80||oidc.kubeflow.svc.cluster.local",
        "outbound|8080||kfp.kubeflow.svc.cluster.local",
    }
    assert [server.port for server in found.servers] == [80, 443]
    found = expectation(None, dataclasses.replace(TARGET, is_managed=True))
    assert (found.routes, len(found.clusters)) == (1, 1)


def test_listeners_of_the_gateway_api_have_hosts_as_servers_do():
    listeners = [{"port": 80, "hostname": WANTED[0]}, {"port": 443}]
    found = seen.servers(TARGET, {"spec": {"listeners": listeners}}, has_tls=True)
    assert [server.hosts for server in found] == [(WANTED[0],), ("*",)]


def test_gateway_without_certificate_has_no_server_for_https():
    (only,) = seen.servers(TARGET, None, has_tls=False)
    assert (only.port, only.protocol, only.hosts) == (80, "HTTP", ())


def said(given, **changes):
    found = seen.messages(expected(AFTER), given, TARGET, count=2, istiod="istio-system")
    return [each.status(application="istio") for each in found]


WHERE = "istio-ingress/gw"
WRITTEN = ops.ActiveStatus(f"2 routes by {WHERE}")


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
        pytest.param({"routes": 3}, WRITTEN, id="some"),
        pytest.param({"routes": 4, "of": "x"}, WRITTEN, id="of-another"),
        pytest.param({"unseen": Unseen.NOT_YET}, WRITTEN, id="not-yet"),
        pytest.param(
            {"unseen": Unseen.UNREACHABLE, "detail": "refused"}, WRITTEN, id="unreachable"
        ),
        pytest.param({"unseen": Unseen.NO_PODS}, WRITTEN, id="no-pods"),
        pytest.param(
            {"unseen": Unseen.FORBIDDEN, "detail": "create pods/portforward in istio-ingress"},
            ops.ActiveStatus(
                f"2 routes by {WHERE} "
                "(not seen: missing permission: create pods/portforward in istio-ingress)"
            ),
            id="right",
        ),
    ],
)
def test_status_says_what_was_seen(values, status):
    assert said(answer(AFTER, **values)) == [status]


def test_status_without_an_answer_says_what_was_written():
    assert said(None) == [WRITTEN]


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
    assert early == WRITTEN


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
