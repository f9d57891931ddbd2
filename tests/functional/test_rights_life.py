"""The application's life with the shipped roles, limited by the admission policy."""

import collections
import dataclasses
import json
from collections.abc import Iterator

import lightkube
import pytest
from ops import testing

from integrator_contract import names, service
from integrator_contract.reasons import Reason
from tests import asked, charm_access, rights, signing, waiting
from tests.api import Api
from tests.functional import (
    charm_runs,
    gateway_api_world,
    ingress_world,
    istiod_world,
    limits_world,
    loopback_istiod,
    loopback_webhook,
)
from tests.functional.limits_world import APP, World
from tests.functional.test_workload_reconciler import create
from tests.kubernetes_objects import made, namespace_of, workload
from tests.unit.charm.ingress_world import auth, authority, route
from tests.unit.workload import pods


@pytest.fixture(scope="module")
def api(client: lightkube.Client, admin: Api) -> Api:
    """An API server that serves Istio's kinds, as the administrator."""
    istiod_world.install_definitions(client)
    return admin


@pytest.fixture
def held(control_plane, api, namespace, untrusted, monkeypatch) -> Iterator[World]:
    """An application without trust that the policy holds, beside an istiod that is away."""
    with lightkube.Client(config=untrusted) as client, Api(untrusted) as app:
        charm_access.connect(monkeypatch, client)
        world = World(namespace, api, app)
        with (
            limits_world.limited(control_plane, world),
            loopback_istiod.unanswered(api, namespace, "Ignore"),
        ):
            yield world


@pytest.fixture
def gateway_namespace(api, control_plane, held):
    """A gateway workload in a namespace of its own, where the application has its role."""
    name = f"{held.model}-gw"
    ports = [("http2", 80, 8080), ("https", 443, 8443)]
    api.create(namespace_of(name))
    for obj in ingress_world.gateway_workload(ports, name, {"istio": name}):
        api.create(obj)
    role = rights.gateway_namespace(held.model, name, "gateway")
    control_plane.kubectl("apply", "-f", "-", text=role)
    yield name
    api.delete(namespace_of(name))


def test_gateway_routes_certificate_and_annotations_come_and_go(api, held, gateway_namespace):
    ports = {"ports": [{"port": 8080}], "selector": {"app": "oidc"}}
    api.create(made("v1", "Service", "oidc", held.model, ports))
    backends = [{"service": "store", "port": 80}]
    calls = {"name": "calls", "listener": {"port": 80, "protocol": "GRPC"}, "backends": backends}
    config = {"config": json.dumps({"model": held.model, "grpc_routes": [calls]})}
    newer = testing.Relation(
        "istio-ingress-route", remote_app_name="store", remote_app_data=config
    )
    related = [route("app-1"), auth(), newer]
    # Nothing runs, so that nothing serves what is removed.
    asked.SERVICE.closes()

    def run(*more, event="config_changed", secrets=(), **options):
        named = {"gateway-service": f"{gateway_namespace}/gateway", "hosts": "kf.example.com"}
        options = {"istiod-namespace": f"istio-{held.model}", **named, **options}
        relations = [*related, *more]
        return charm_runs.run(event, held.model, relations=relations, secrets=secrets, **options)

    def kinds(**options):
        run(route("app-2"), **{"gateway-service": "", **options})
        return {each["kind"] for each in charm_runs.owned(api, held.model)}

    routed = {"DestinationRule", "VirtualService"}
    written = kinds()
    assert {"Deployment", "Role", "RoleBinding", "ServiceAccount", *routed} <= written
    assert "PodDisruptionBudget" in written
    one = {"gateway-replicas": 1, "gateway-service-type": "NodePort"}
    assert "PodDisruptionBudget" not in kinds(**one)
    assert "PodDisruptionBudget" in kinds(**{"gateway-replicas": 3, "gateway-cpu": "1"})
    out = run(authority(), **{"gateway-service-annotations": "{example.com/name: kf}"})
    service = api.get("Service", "gateway", gateway_namespace)
    assert service["metadata"]["annotations"]["example.com/name"] == "kf"
    (asking,) = out.get_relations("certificates")
    signed, _ = signing.answer(asking.local_app_data["certificate_signing_requests"])
    run(dataclasses.replace(asking, remote_app_data=signed), secrets=out.secrets)
    shown = "Secret", f"istio-integrator.{held.owner}"
    assert api.get(*shown, gateway_namespace)
    related.append(dataclasses.replace(asking, remote_app_data=signed))
    run(secrets=out.secrets, **{"gateway-service": ""})
    assert api.get(*shown, held.model)
    run(secrets=out.secrets)
    charm_runs.run("remove", held.model, units=0)
    assert charm_runs.owned(api, held.model) == []
    assert api.get(*shown, gateway_namespace) is None
    service = api.get("Service", "gateway", gateway_namespace)
    assert "example.com/name" not in service["metadata"].get("annotations", {})


@pytest.mark.usefixtures("unreachable_node")
def test_workload_watches_all_that_it_needs_and_replaces_a_broken_pod(  # noqa: PLR0917
    api, client, held, gateway_namespace, unused, untrusted_kubeconfig, tmp_path
):
    found = api.get("Namespace", held.model)
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": held.model, "controller": True}
    owners = [{**owner, "uid": found["metadata"]["uid"]}]
    about = {"name": "broken", "namespace": held.model, "ownerReferences": owners}
    create(client, pods.pod_json(pods.running(), proxy=pods.ended(1), **about))
    # No way leads to its proxy: neither a port-forward nor a command.
    for name, annotations in (("forwarded", {}), ("run", {names.STATUS_PORT: "0"})):
        done = {"name": name, "namespace": held.model, "annotations": annotations}
        create(client, pods.pod_json(pods.ended(), proxy=pods.running(), **done))
    secrets = (f"istio-integrator.{held.owner}",)
    settings = service.Options(
        model=held.model,
        application=APP,
        unit=f"{APP}/0",
        leader=True,
        joined=True,
        mesh_namespace="istio-system",
        delete_broken_pods=True,
        gateway=service.Gateway(namespace=gateway_namespace, name="gateway", secrets=secrets),
    )
    reasons = {Reason.PROXY_LOST: 1, "ProxyStopFailed": 2}

    def told():
        found = collections.Counter(each["reason"] for each in api.list("Event", held.model))
        return {reason: found[reason] for reason in reasons}

    with loopback_webhook.reconciler(tmp_path, untrusted_kubeconfig, settings):
        is_gone = waiting.eventually(lambda: api.get("Pod", "broken", held.model) is None)
        assert waiting.eventually(lambda: told() == reasons), told()
        own = dataclasses.replace(settings, gateway=service.Gateway(secrets=secrets))
        (tmp_path / "settings.json").write_text(own.encode())
        assert waiting.eventually(lambda: not unused()), unused()
    log = (tmp_path / "run.log").read_text()
    assert is_gone, log
    assert "broken pod deleted" in log
    assert "forbidden" not in log


def test_options_of_each_role_are_applied_and_taken_back_and_diagnose_reads_the_rest(
    api, client, held
):
    gateway_api_world.install_definitions(client)
    profile, mesh = f"{held.model}-user", f"istio-{held.model}"
    marks = {names.PART_OF: names.PROFILE, names.INJECTION: "enabled"}
    classes = "gateway.networking.k8s.io/v1", "GatewayClass", held.model
    created = [
        api.create(obj)
        for obj in (
            namespace_of(profile, **marks),
            namespace_of(mesh),
            workload("Deployment", "istiod", mesh, {"app": "istiod"}),
            *ingress_world.gateway_workload([("http2", 80, 8080)], mesh, {"istio": held.model}),
            made(*classes, spec={"controllerName": names.GATEWAY_CONTROLLER}),
        )
    ]
    # Hooks connect as the application, by whichever options.
    place = ingress_world.unserved(lightkube.Client(None), api, held.model)

    def owned(**options):
        place.options = {"istiod_namespace": mesh, "gateway_service": "", **options}
        place.hook()
        return {each["metadata"]["name"] for each in place.owned()}

    own = f"istio-integrator.{held.owner}"
    assert f"{own}.training" in owned(pod_networks="10.1.0.0/16")
    owned()
    owned(gateway_service=f"{mesh}/gateway", hosts="kf.example.com")
    assert "CHECK_FORBIDDEN" not in str(place.diagnosed())
    owned(mesh_mode="ambient")
    managed = {"routing": "gateway-api", "hosts": "kf.example.com", "https_redirect": True}
    place.kept = [authority()]
    owned(**managed)
    (asking,) = place.kept
    signed, _ = signing.answer(asking.local_app_data["certificate_signing_requests"])
    place.kept = [dataclasses.replace(asking, remote_app_data=signed)]
    assert f"{own}.https" in owned(**managed)
    place.remove()
    assert place.owned() == []
    for obj in created:
        api.delete(obj)
