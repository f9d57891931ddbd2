"""Which routes of others lead into the model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import routes_inward

MODEL = "kubeflow"
OWN = "kubeflow/kubeflow-gateway"
KFP = "ml-pipeline.kubeflow.svc.cluster.local"
PLACE = routes_inward.Place(
    model=MODEL,
    domain="cluster.local",
    gateways={OWN, "shop/web"},
    own=OWN,
    other_names={"shop/alias": KFP, "shop/again": "alias.shop.svc.cluster.local"},
    routers={"kubeflow/knative-local-gateway"},
)
ROUTER = "knative-local-gateway.kubeflow.svc.cluster.local"


def route(*http, space="shop", name="theirs", gateways=("shop/web",), **more):
    metadata = {"namespace": space, "name": name}
    return {"metadata": metadata, "spec": {"gateways": [*gateways], "http": [*http], **more}}


def to(host):
    return [{"destination": {"host": host}}]


def said(*routes):
    return list(routes_inward.judge(routes, PLACE))


FORWARDED = "leads into the model"
UNSEEN = "say themselves whom they are from"


@pytest.mark.parametrize(
    ("given_route", "words"),
    [
        pytest.param(route({"route": to(KFP)}), FORWARDED, id="by its full name"),
        pytest.param(route({"route": to(KFP.upper())}), FORWARDED, id="in upper case"),
        pytest.param(route({"route": to("alias")}), FORWARDED, id="by another name"),
        pytest.param(route({"route": to("again")}), FORWARDED, id="by a name of another name"),
        pytest.param(
            route({"route": [*to("web"), *to(KFP)]}), FORWARDED, id="a part of the traffic"
        ),
        pytest.param(
            route({"route": to(KFP)}, gateways=["web"]), FORWARDED, id="by a Gateway beside it"
        ),
        pytest.param(route({"route": to(KFP)}, gateways=[OWN]), FORWARDED, id="on our Gateway"),
        pytest.param(route({"route": to("web"), "mirror": {"host": KFP}}), UNSEEN, id="as a copy"),
        pytest.param(
            route({"route": to("web"), "mirrors": to(KFP)}), UNSEEN, id="as one of several copies"
        ),
        pytest.param(
            route({"route": to("web"), "mirror": {"host": KFP}}, gateways=[OWN]),
            FORWARDED,
            id="as a copy of what is guarded",
        ),
        pytest.param(route(tcp=[{"route": to(KFP)}], gateways=[OWN]), UNSEEN, id="by TCP"),
        pytest.param(route(tls=[{"route": to(KFP)}]), UNSEEN, id="by TLS passed through"),
    ],
)
def test_route_of_others_into_the_model_is_named(given_route, words):
    (found,) = said(given_route)
    assert found.level.value == "!"
    assert "shop/theirs" in found.seen
    assert words in found.seen
    assert found.next == "kubectl -n shop get virtualservice theirs -o yaml"


@pytest.mark.parametrize(
    "given_route",
    [
        pytest.param(route({"route": to("ml-pipeline")}), id="a short name is beside the route"),
        pytest.param(route({"route": to(KFP)}, gateways=["mesh"]), id="for sidecars"),
        pytest.param(route({"route": to(KFP)}, gateways=["else/where"]), id="on another workload"),
        pytest.param(route({"route": to(KFP)}, space=MODEL), id="the model's own"),
        pytest.param(route({"redirect": {"uri": "/"}}), id="nowhere"),
        pytest.param(route({"route": to(ROUTER)}, gateways=[OWN]), id="to another gateway"),
    ],
)
def test_route_that_does_not_is_not(given_route):
    (found,) = said(given_route)
    assert found.level.value == "✓"


def deployed(name, labels, *, routes):
    container = {"name": "istio-proxy", "args": ["proxy", "router"]} if routes else {"name": "app"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {"metadata": {"namespace": MODEL, "name": name}, "spec": {"template": template}}


@pytest.mark.parametrize(
    ("workloads", "is_router"),
    [
        pytest.param([("gw", {"istio": "local"}, True)], True, id="gateway"),
        pytest.param([("app", {"istio": "local"}, False)], False, id="application"),
        pytest.param(
            [("gw", {"istio": "local"}, True), ("app", {"istio": "local"}, False)],
            False,
            id="gateway and application",
        ),
        pytest.param([("gw", {"istio": "other"}, True)], False, id="nothing"),
    ],
)
def test_service_of_gateways_alone_is_a_router(workloads, is_router):
    service = {
        "metadata": {"namespace": MODEL, "name": "local"},
        "spec": {"selector": {"istio": "local"}},
    }
    made = [deployed(name, labels, routes=routes) for name, labels, routes in workloads]
    assert routes_inward.routers([service], made) == ({"kubeflow/local"} if is_router else set())


def test_route_that_hands_on_is_named_for_where_that_leads():
    handing = route({"delegate": {"name": "on"}}, name="handing")
    on = route({"route": to(KFP)}, name="on", gateways=[])
    (found,) = said(handing, on)
    assert "shop/handing" in found.seen


def test_of_thousands_of_routes_a_few_are_named():
    many = [route({"route": to(KFP)}, name=f"r{number:04}") for number in range(5_000)]
    (found,) = said(*many)
    assert "shop/r0000" in found.seen
    assert "4997 more" in found.seen
    assert len(found.seen) < 300


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_destination_is_either_in_or_out(host, namespace):
    assert PLACE.is_inside(host, namespace) in (True, False)
