"""Whether the Gateway API can serve the model, and what the routes are in its words."""

import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import names
from istio_integrator.ingress import gateway, record
from istio_integrator.ingress.gateways import managed
from istio_integrator.ingress.routes import render
from istio_integrator.kube import manifests
from istio_integrator.messages import Said
from istio_integrator.relations import kubeflow
from tests.unit.charm.ingress import wishes


def test_named_gateway_is_refused_with_the_command():
    options = types.SimpleNamespace(gateway_service="edge/shared", hosts=("a.example",))
    scope = types.SimpleNamespace(config=options, mesh=None, application="us")
    obstacle = managed.ManagedGateway(scope).obstacle(None).text
    assert "gateway-service=edge/shared is refused with routing=gateway-api" in obstacle
    assert "run: juju config us gateway-service=" in obstacle


def said(**conditions):
    """Our Gateway with what istiod said about it."""
    listed = [
        {"type": kind, "status": status, "message": "in its words", "observedGeneration": seen}
        for kind, (status, seen) in conditions.items()
    ]
    return {"metadata": {"generation": 2}, "status": {"conditions": listed}}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        (None, Said.GATEWAY_NOT_ACCEPTED_YET),
        (said(), Said.GATEWAY_NOT_ACCEPTED_YET),
        (said(Accepted=("Unknown", 0), Programmed=("Unknown", 0)), Said.GATEWAY_NOT_ACCEPTED_YET),
        (said(Accepted=("True", 1), Programmed=("True", 1)), Said.GATEWAY_NOT_ACCEPTED_YET),
        (said(Accepted=("False", 2), Programmed=("True", 2)), Said.GATEWAY_NOT_ACCEPTED),
        (said(Accepted=("True", 2), Programmed=("False", 2)), Said.GATEWAY_NOT_PROGRAMMED),
        (said(Accepted=("True", 2), Programmed=("True", 2)), None),
    ],
)
def test_what_istiod_says_of_the_gateway_as_it_is_counts(obj, want):
    problem = managed.problem(obj)
    assert (problem and problem.said) is want


def test_virtual_services_of_others_on_our_gateway_are_found_by_both_spellings():
    def bound(namespace, name, named, owner=""):
        labels = {"istio-integrator.charmhub.io/owner": owner} if owner else {}
        metadata = {"namespace": namespace, "name": name, "labels": labels}
        return {"metadata": metadata, "spec": {"gateways": named}}

    found = [
        bound("alice", "notebook", ["kubeflow/kubeflow-gateway"]),
        bound("kubeflow", "short", ["mesh", "kubeflow-gateway"]),
        bound("kubeflow", "ours", ["kubeflow/kubeflow-gateway"], "us"),
        bound("alice", "another", ["kubeflow-gateway", "shop/web"]),
        bound("alice", "garbled", "kubeflow/kubeflow-gateway"),
    ]
    names = managed.bound(found, model="kubeflow", owner="us")
    assert names == ["alice/notebook", "kubeflow/short"]


TARGET = gateway.Target(
    namespace="kubeflow",
    selector={names.GATEWAY_NAME: gateway.NAME},
    service="kubeflow-gateway-istio",
    http_port=80,
    https_port=443,
    hosts=tuple(f"{number}.example.com" for number in range(managed.MOST_HOSTS)),
)


HOSTS = dict.fromkeys((80, 443), TARGET.hosts)


def written(hosts):
    context = {
        "name": gateway.NAME,
        "target": TARGET,
        "credential": "tls",
        "hosts": hosts,
        "gateway_class": "istio",
        "revision": "",
        "only_https": False,
    }
    (found,) = manifests.render(managed.FOLDER, context)
    return found


def test_every_host_has_a_listener_at_each_port_and_each_a_name_of_its_own():
    found = written(HOSTS)["spec"]["listeners"]
    assert len({one["name"] for one in found}) == len(found) == 64
    assert {(one["port"], one["hostname"]) for one in found} == {
        (port, host) for port in (80, 443) for host in TARGET.hosts
    }


@pytest.mark.parametrize(("ports", "credential"), [((80, 443), "tls"), ((80,), "")])
def test_certificate_is_read_from_our_gateway_again(ports, credential):
    found = written({port: ["*"] for port in ports})
    assert gateway.credential(found) == credential
    assert gateway.credential(None) == ""


def older(number, prefix, rewrite=None):
    """What one relation asks for by the older interface."""
    message = kubeflow.IngressRequest.model_construct(
        service=f"app-{number}", port=80, prefix=prefix, rewrite=rewrite, namespace=None
    )
    received = kubeflow.Received(number, f"app-{number}", message)
    return wishes.plan(older=[received]).routes


def objects(*found):
    context = render.http_routes(render.fit(found)[0], record.Values(), application="us")
    return manifests.render(render.HTTP_ROUTES, context)


def calls(service, method, number=1):
    """What one relation asks for with gRPC."""
    asked = wishes.route({"method": {"service": service, "method": method}})
    return wishes.plan(wishes.received(number, grpc=[asked])).routes


def test_method_of_grpc_is_a_path():
    (found,) = objects(*calls("ml.Store", "Get.All"))
    assert found["kind"] == "HTTPRoute"
    path = {"type": "Exact", "value": "/ml.Store/Get.All"}
    assert found["spec"]["rules"][0]["matches"][0]["path"] == path


def test_call_that_is_an_older_path_is_the_olders():
    exact = wishes.plan(wishes.received(1, wishes.route(wishes.match("/ml.Store/Get", "Exact"))))
    found, problems = render.fit([*exact.routes, *calls("ml.Store", "Get", number=2)])
    assert [one.relation for one in found] == [1]
    assert len(problems) == 1


def test_prefix_that_ends_with_a_slash_is_the_same_one_and_the_older_has_it():
    found, problems = render.fit([*older(1, "/kfp/"), *older(2, "/kfp"), *older(3, "/kfpx")])
    assert {one.source for one in found} == {"ingress:1 app-1", "ingress:3 app-3"}
    assert problems == ["ingress:2 app-2: prefix /kfp is that of ingress:1 app-1"]


@pytest.mark.parametrize("path", ["/a//b", "/a/../b", "/a/.", "/a%2Fb", '/a"b', "/a|b", "/a%zz"])
def test_path_that_the_api_server_would_refuse_costs_its_application_alone(path):
    found, problems = render.fit([*older(1, path), *older(2, "/b"), *older(3, "/c", path)])
    assert [one.source for one in found] == ["ingress:2 app-2"]
    assert len(problems) == 2


@given(st.lists(st.from_regex(r"/[!-~]{0,20}", fullmatch=True), max_size=8))
def test_whatever_is_asked_for_is_served_once_or_named(prefixes):
    asked = [route for n, prefix in enumerate(prefixes) for route in older(n, prefix)]
    found, problems = render.fit(asked)
    assert len(found) + len(problems) == len(asked)
    parts = [one.path.rstrip("/") for one in found]
    assert len(set(parts)) == len(parts)
    assert all(render.is_path(one.path) for one in found)
    assert len({each["metadata"]["name"] for each in objects(*found)}) == len(found)
