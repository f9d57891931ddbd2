"""The application's life with the shipped roles, limited by the admission policy."""

import dataclasses
import json
from collections.abc import Iterator

import lightkube
import pytest
import yaml
from ops import testing

from integrator_contract import service
from integrator_contract.reasons import Reason
from tests import asked, charm_access, rights, signing, waiting
from tests.api import Api
from tests.functional import (
    charm_runs,
    ingress_world,
    istiod_world,
    limits_world,
    loopback_istiod,
    loopback_webhook,
)
from tests.functional.limits_world import APP, World
from tests.functional.test_workload_reconciler import create
from tests.kubernetes_objects import made, namespace_of
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
def gateway_namespace(api, namespace):
    """A gateway workload in a namespace of its own."""
    name = f"{namespace}-gw"
    ports = [("http2", 80, 8080), ("https", 443, 8443)]
    api.create(namespace_of(name))
    for obj in ingress_world.gateway_workload(ports, name, {"istio": name}):
        api.create(obj)
    yield name
    api.delete(namespace_of(name))


def test_gateway_routes_certificate_and_annotations_come_and_go(
    api, control_plane, held, gateway_namespace
):
    elsewhere = rights.gateway_namespace(held.model, gateway_namespace, "gateway")
    control_plane.kubectl("apply", "-f", "-", text=elsewhere)
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
    shown = "Secret", f"istio-integrator.{held.owner}", gateway_namespace
    assert api.get(*shown)
    charm_runs.run("remove", held.model, units=0)
    assert charm_runs.owned(api, held.model) == []
    assert api.get(*shown) is None
    service = api.get("Service", "gateway", gateway_namespace)
    assert "example.com/name" not in service["metadata"].get("annotations", {})


@pytest.mark.usefixtures("unreachable_node")
def test_workload_watches_all_that_it_needs_and_replaces_a_broken_pod(  # noqa: PLR0917
    api, client, held, kubeconfig, untrusted, tmp_path
):
    found = api.get("Namespace", held.model)
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": held.model, "controller": True}
    owners = [{**owner, "uid": found["metadata"]["uid"]}]
    about = {"name": "broken", "namespace": held.model, "ownerReferences": owners}
    create(client, pods.pod_json(pods.running(), proxy=pods.ended(1), **about))
    settings = service.Options(
        model=held.model,
        application=APP,
        unit=f"{APP}/0",
        leader=True,
        joined=True,
        mesh_namespace="istio-system",
        delete_broken_pods=True,
        gateway=service.Gateway(secrets=(f"istio-integrator.{held.owner}",)),
    )
    access = yaml.safe_load(kubeconfig.read_text())
    access["users"][0]["user"] = {"token": untrusted.user.token}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(access))
    with loopback_webhook.reconciler(tmp_path, tmp_path / "kubeconfig", settings):
        is_gone = waiting.eventually(lambda: api.get("Pod", "broken", held.model) is None)
    log = (tmp_path / "run.log").read_text()
    assert is_gone, log
    assert "broken pod deleted" in log
    assert "forbidden" not in log
    told = [each["reason"] for each in api.list("Event", held.model)]
    assert told.count(Reason.PROXY_LOST) == 1
