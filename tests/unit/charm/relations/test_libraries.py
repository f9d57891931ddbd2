"""The other side of each interface is the library that charms use for it."""

import json
import pathlib

import ops
import pytest
import serialized_data_interface as sdi
import yaml
from charmlibs.interfaces import forward_auth, istio_ingress_route, service_mesh
from ops import testing

from istio_integrator.relations import endpoints, ingress_route, kubeflow
from istio_integrator.relations import service_mesh as meshed
from tests.unit.cases import cases
from tests.unit.charm.ingress import wishes

METADATA = yaml.safe_load((pathlib.Path(__file__).parents[4] / "metadata.yaml").read_text())
OURS = {**METADATA["provides"], **METADATA["requires"]}


class Charm(ops.CharmBase):
    """A charm whose library does all, what it then tells, and the library's own events."""

    events: list = []  # noqa: RUF012

    def __init__(self, framework):
        super().__init__(framework)
        Charm.told = Charm.act(self)

    def note(self, event):
        Charm.events.append(event)


def run(act, relation, *others, role="requires", event="relation_changed", model="other", **meta):
    """Run a charm on the other side of a relation; what it wrote and what it was told."""
    interface = {"interface": OURS[relation.endpoint]["interface"], **meta.pop("agreed", {})}
    described = {"name": "other", role: {relation.endpoint: interface}}
    for key, value in meta.items():
        described[key] = {**described.get(key, {}), **value}
    Charm.act, Charm.events = act, []
    ctx = testing.Context(Charm, meta=described)
    state = testing.State(
        leader=True, relations={relation, *others}, model=testing.Model(model, type="kubernetes")
    )
    out = ctx.run(getattr(ctx.on, event)(relation), state)
    return out.get_relation(relation.id).local_app_data, Charm.told


def answered(endpoint, act, *others, leader=True):
    """Return the charm's data bag of a relation, written as the leader."""
    meta = {key: METADATA[key] for key in ("name", "provides", "requires")}
    ctx = testing.Context(ops.CharmBase, meta=meta)
    relation = testing.Relation(endpoint)
    state = testing.State(leader=leader, relations={relation, *others})
    with ctx(ctx.on.start(), state) as manager:
        charm = manager.charm
        act(endpoints.Relations(charm))
        return manager.run().get_relation(relation.id).local_app_data


def interface(tmp_path, monkeypatch, endpoint, bag, *, versions, sends=None):
    """Run a charm that speaks serialized-data-interface, which reads its metadata from a file."""
    ours = OURS[endpoint]
    agreed = {
        "schema": {version: ours["schema"][version] for version in versions},
        "versions": list(versions),
    }
    meta = {"requires": {endpoint: {"interface": ours["interface"], **agreed}}}
    (tmp_path / "metadata.yaml").write_text(yaml.safe_dump({"name": "other", **meta}))
    monkeypatch.chdir(tmp_path)

    def act(charm):
        found = sdi.get_interface(charm, endpoint)
        if sends is not None:
            found.send_data(sends)
        return found.get_data()

    return run(act, testing.Relation(endpoint, remote_app_data=bag), agreed=agreed)


DASHBOARD = {
    "service": "kubeflow-dashboard",
    "port": 8082,
    "prefix": "/",
    "rewrite": "/",
    "namespace": "kf",
}
OIDC = {
    "service": "oidc-gatekeeper",
    "port": 8080,
    "allowed-request-headers": ["cookie", "X-Auth-Token", "Cookie"],
    "allowed-response-headers": ["kubeflow-userid"],
}
AUTH = kubeflow.AuthRequest(
    service="oidc-gatekeeper",
    port=8080,
    allowed_request_headers=("cookie", "x-auth-token"),
    allowed_response_headers=("kubeflow-userid",),
)
INGRESS = kubeflow.IngressRequest(**DASHBOARD)


@cases(
    ("endpoint", "versions", "want"),
    ingress_v1=("ingress", ("v1",), INGRESS),
    ingress_v2=("ingress", ("v2",), INGRESS),
    ingress_of_both=("ingress", ("v1", "v2"), INGRESS),
    ingress_auth=("ingress-auth", ("v1",), AUTH),
)
def test_request_is_agreed_with_the_library(tmp_path, monkeypatch, endpoint, versions, want):
    bag = answered(endpoint, kubeflow.announce_versions)
    sends = OIDC if endpoint == "ingress-auth" else DASHBOARD
    said = interface(tmp_path, monkeypatch, endpoint, bag, versions=versions, sends=sends)[0]
    models = kubeflow.AUTH_MODELS if endpoint == "ingress-auth" else kubeflow.INGRESS_MODELS
    assert kubeflow.read_request(said, models) == (want, "")


def test_istiod_is_told_as_the_library_reads_it(tmp_path, monkeypatch):
    def act(related):
        kubeflow.announce_versions(related)
        kubeflow.publish_pilot(related, service="istiod.istio-system.svc", port=15012)

    bag = answered("istio-pilot", act)
    _, told = interface(tmp_path, monkeypatch, "istio-pilot", bag, versions=("v1",))
    assert [*told.values()] == [
        {"service-name": "istiod.istio-system.svc", "service-port": "15012"}
    ]


def test_each_endpoint_is_observed_and_the_departure_of_units_that_write():
    meta = {key: METADATA[key] for key in ("name", "provides", "requires")}
    ctx = testing.Context(ops.CharmBase, meta=meta)
    with ctx(ctx.on.start(), testing.State()) as manager:
        observed = sorted(each.event_kind for each in endpoints.list_events(manager.charm))
    names = [each.replace("-", "_") for each in OURS]
    changed = [f"{name}_relation_{kind}" for name in names for kind in ("changed", "broken")]
    assert observed == sorted([*changed, "logging_relation_departed"])


def test_unit_that_does_not_lead_writes_nothing():
    assert answered("ingress", kubeflow.announce_versions, leader=False) == {}


def test_leader_that_is_none_any_more_leaves_writing_to_the_next(monkeypatch):
    def refuse(*_):
        raise ops.RelationDataAccessError("kf is not leader")

    monkeypatch.setattr(ops.RelationDataContent, "__setitem__", refuse)
    assert answered("ingress", kubeflow.announce_versions) == {}


ADDRESS = "http://oidc-gatekeeper.kf.svc.cluster.local:8080"
OATHKEEPER = ("http://oathkeeper.iam.svc.cluster.local:4456/decisions", ["kfp-ui"], ["X-User"])


def provides(config, **bags):
    """Return the data bag that an authorization service writes."""

    def act(charm):
        charm.library = forward_auth.ForwardAuthProvider(charm, forward_auth_config=config)
        for event in ("forward_auth_proxy_set", "invalid_forward_auth_config"):
            charm.framework.observe(getattr(charm.library.on, event), charm.note)

    relation = testing.Relation("forward-auth", **bags)
    event = "relation_changed" if bags else "relation_created"
    return run(act, relation, role="provides", event=event)[0]


@cases(
    ("given", "address", "headers"),
    oidc_gatekeeper=(
        (ADDRESS, [], ["kubeflow-userid"]),
        ("oidc-gatekeeper.kf.svc.cluster.local", 8080, ""),
        ("kubeflow-userid",),
    ),
    oathkeeper=(OATHKEEPER, ("oathkeeper.iam.svc.cluster.local", 4456, "/decisions"), ("x-user",)),
    oauth2_proxy=(
        ("http://oauth2-proxy-k8s.iam.svc.cluster.local:4180", ["other"], None),
        ("oauth2-proxy-k8s.iam.svc.cluster.local", 4180, ""),
        (),
    ),
)
def test_forward_auth_is_agreed_with_the_library(given, address, headers):
    keys = ("decisions_address", "app_names", "headers")
    given = {key: value for key, value in zip(keys, given, strict=True) if value is not None}
    bag = provides(forward_auth.ForwardAuthConfig(**given))
    message, problem = kubeflow.read_forward_auth_bag(bag)
    assert problem == ""
    assert message.decisions_address == kubeflow.Address(*address)
    assert message.headers == headers


def test_authorization_service_that_has_said_nothing_yet_is_waited_for():
    assert kubeflow.read_forward_auth_bag(provides(None)) == (None, "")


@pytest.mark.parametrize(
    ("routed", "words"),
    [
        (("dex-auth", "kfp-ui", "a"), "protected"),
        (("dex-auth",), "kfp-ui is not related via ingress"),
    ],
)
def test_applications_that_we_route_to_are_those_that_the_library_lets_protect(routed, words):
    routes = [
        testing.Relation(endpoint, remote_app_name=name)
        for endpoint, name in zip(("ingress", wishes.ASKED, wishes.OPEN), routed, strict=False)
    ]
    ours = answered("forward-auth", kubeflow.publish_routed, *routes)
    assert json.loads(ours["ingress_app_names"]) == sorted(routed)
    address, names, headers = OATHKEEPER
    config = forward_auth.ForwardAuthConfig(
        decisions_address=address, app_names=names, headers=headers
    )
    before = provides(config)
    provides(config, remote_app_data=dict(ours), local_app_data=dict(before))
    assert [getattr(each, "error", "protected") for each in Charm.events] == [words]


def consume(model="kf", **bag):
    """Return the data bag of an application with two clients, and its reading of the charm's."""

    def act(charm):
        allowed = service_mesh.Endpoint(
            ports=[8888],
            methods=[service_mesh.Method.get],
            paths=["/apis/*"],
            hosts=["ml-pipeline.kf.svc.cluster.local"],
        )
        application = service_mesh.AppPolicy(
            relation="kfp-api", endpoints=[allowed], service="ml-pipeline"
        )
        unit = service_mesh.UnitPolicy(relation="metrics-endpoint", ports=[9090])
        charm.library = service_mesh.ServiceMeshConsumer(
            charm, policies=[application, unit], auto_join=False
        )
        return charm.library.labels(), charm.library.mesh_type()

    clients = [
        testing.Relation("kfp-api", remote_app_name="kfp-ui"),
        testing.Relation("kfp-api", remote_app_name="kfp-persistence"),
        testing.Relation("metrics-endpoint", remote_app_name="prometheus"),
    ]
    return run(
        act,
        testing.Relation("service-mesh", remote_app_data=bag),
        *clients,
        event="relation_created",
        model=model,
        requires={"require-cmr-mesh": {"interface": "cross_model_mesh"}},
        provides={
            "kfp-api": {"interface": "k8s-service"},
            "metrics-endpoint": {"interface": "prometheus_scrape"},
            "provide-cmr-mesh": {"interface": "cross_model_mesh"},
        },
    )


def read_policies(bag, application="kfp-api"):
    return meshed.read_policies(endpoints.Bag(3, application, bag), model="kf")


def test_policies_of_the_library_are_read_whole():
    one = read_policies(consume()[0])
    assert not one.problems
    assert {(each.source_app_name, each.target_type) for each in one.policies} == {
        ("kfp-ui", "app"),
        ("kfp-persistence", "app"),
        ("prometheus", "unit"),
    }
    (ui,) = (each for each in one.policies if each.source_app_name == "kfp-ui")
    assert ui.target_service == "ml-pipeline"
    host = "ml-pipeline.kf.svc.cluster.local"
    assert ui.endpoints == (
        meshed.AllowedRequests(ports=(8888,), methods=("GET",), paths=("/apis/*",), hosts=(host,)),
    )


@pytest.mark.parametrize("labels", [{}, {"istio.io/rev": "1-31"}])
def test_labels_of_members_are_heard_by_the_library(labels):
    bag = answered("service-mesh", lambda related: meshed.publish_labels(related, labels=labels))
    assert set(bag) == {"labels", "mesh_type"}
    assert consume(**bag)[1] == (labels, service_mesh.MeshType.istio)


REMOTE = "remote-0123456789abcdef0123456789abcdef"


@cases(
    ("application", "problem"),
    related_by_an_offer=(
        REMOTE,
        "is of a different model: relate it to the integrator of that model",
    ),
    consumed_under_a_name=(
        "kfp-api-of-theirs",
        "policy 1 is for namespace other, which is not kf",
    ),
)
def test_application_of_another_model_is_refused_by_name_as_the_library_writes(
    application, problem
):
    bag, _ = consume(model="other")
    one = read_policies(bag, application)
    assert (one.policies, one.problems[0]) == ((), problem)
    assert application in one.reference


ROUTE = {
    "name": "http-ingress",
    "listener": {"port": 443, "protocol": "HTTP"},
    "backends": [{"service": "jupyter-ui", "port": 5000, "weight": 7}],
    "hostnames": ["kf.example.com"],
    "matches": [
        {"path": {"type": "Exact", "value": "/jupyter/"}, "method": "GET", "headers": {"X-A": "b"}}
    ],
    "filters": [
        {
            "urlRewrite": {
                "hostname": "in.example.com",
                "path": {"type": "ReplacePrefixMatch", "value": "/"},
            }
        },
        {"requestRedirect": {"scheme": "https", "statusCode": 308}},
    ],
}
CALLS = {
    "name": "calls",
    "listener": {"port": 80, "protocol": "GRPC"},
    "backends": [{"service": "envoy", "port": 9090}],
    "matches": [{"method": {"service": "ml.Store", "method": "Get"}, "headers": {"x-b": "c"}}],
}
FULL = istio_ingress_route.IstioIngressRouteConfig(
    model="kf",
    listeners=[{"port": 80, "protocol": "HTTP"}],
    http_routes=[ROUTE],
    grpc_routes=[CALLS],
)


def requires(**answer):
    """Return the data bag of a charm that requests routes, and its reading of the answer."""

    def act(charm):
        route = istio_ingress_route.IstioIngressRouteRequirer(charm, wishes.ASKED)
        route.submit_config(FULL)
        return route.external_host, route.tls_enabled

    return run(act, testing.Relation(wishes.ASKED, remote_app_data=answer))


def test_routes_of_the_library_are_read():
    bag, _ = requires()
    config, problem = ingress_route.read_config(bag[ingress_route.CONFIG])
    assert problem == ""
    (http,), (grpc,) = config.http_routes, config.grpc_routes
    assert (config.model, http.name, http.listener.port) == ("kf", "http-ingress", 443)
    (backend,) = http.backends
    assert (backend.service, backend.port) == ("jupyter-ui", 5000)
    (match,) = http.matches
    assert (match.path.type, match.path.value) == ("Exact", "/jupyter/")
    rewrite, redirect = http.filters
    assert rewrite.url_rewrite.path.type == "ReplacePrefixMatch"
    assert rewrite.url_rewrite.path.value == "/"
    assert redirect.url_rewrite is None
    (call,) = grpc.matches
    assert (call.method.service, call.method.method) == ("ml.Store", "Get")
    # What is not served is refused by the name of the route.
    assert sorted(match.unserved) == ["headers", "method"]
    assert (call.unserved, http.unserved) == (["headers"], ["hostnames"])
    assert rewrite.url_rewrite.unserved == ["hostname"]


@pytest.mark.parametrize(("tls", "word"), [(True, "True"), (False, "False")])
def test_answer_to_routes_is_what_the_library_reads(tls, word):
    bag = answered(
        wishes.ASKED,
        lambda related: ingress_route.publish_host(
            related, external_host="kf.example.com", tls_enabled=tls
        ),
    )
    assert bag == {"external_host": "kf.example.com", "tls_enabled": word}
    assert requires(**bag)[1] == ("kf.example.com", tls)
