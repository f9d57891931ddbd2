"""The whole charm with ingress relations, on a small API server."""

import base64
import dataclasses
import datetime
import json

import ops
import pytest
import yaml
from charmlibs.interfaces import tls_certificates
from ops import testing

import admission
import charm
import cluster as charm_cluster
import ingress
import relations_certificates
from tests.unit.charm import fake_cluster

TIMEOUT = 0
LABELS = {"app": "istio-ingressgateway", "istio": "ingressgateway"}
AUTH = {
    "service": "oidc",
    "port": 8080,
    "allowed-request-headers": ["cookie"],
    "allowed-response-headers": ["kubeflow-userid"],
}


@pytest.fixture(autouse=True)
def connected(fake, monkeypatch):
    monkeypatch.setattr(admission, "PROBE_DELAYS", ())
    monkeypatch.setattr(ingress, "SETTLE", 0)
    monkeypatch.setattr(charm_cluster, "connect", fake.api)
    fake_cluster.install_istio(fake)
    install_gateway(fake)


def install_gateway(fake, namespace="istio-ingress"):
    fake.namespace(namespace)
    proxy = {"name": "istio-proxy", "args": ["proxy", "router"]}
    metadata = {"name": "istio-ingressgateway", "namespace": namespace}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [proxy]}}
    fake.add(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**metadata},
            "spec": {"template": template},
            "status": {"readyReplicas": 1},
        }
    )
    ports = [{"name": "http2", "port": 80}, {"name": "https", "port": 443}]
    fake.add(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**metadata},
            "spec": {"selector": LABELS, "ports": ports},
        }
    )


def neighbour(fake, host="shop.example.com"):
    servers = [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": [host]}]
    fake.namespace("shop")
    return fake.add(
        {
            "apiVersion": "networking.istio.io/v1",
            "kind": "Gateway",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"istio": "ingressgateway"}, "servers": servers},
        }
    )


def sdi(endpoint, application, **data):
    bag = {"_supported_versions": "[v1]", "data": yaml.safe_dump(data)} if data else {}
    return testing.Relation(endpoint, remote_app_name=application, remote_app_data=bag)


def route(application="kfp-ui", **changes):
    data = {"service": application, "port": 3000, "prefix": f"/{application}", **changes}
    return sdi("ingress", application, **data)


def auth(**changes):
    return sdi("ingress-auth", "oidc-gatekeeper", **{**AUTH, **changes})


class World:
    """One application, event after event."""

    def __init__(self, fake):
        self.fake = fake
        self.ctx = testing.Context(charm.IstioIntegrator)
        self.related = []
        self.config = {}

    def run(self, event=None, units=1, *, leader=True):
        summary = {"eligible": 1, "in_mesh": 1, "converging": 0, "proposed": 0, "guarded": []}
        line = json.dumps({"summary": {**summary, "reported": 0, "settled_before_us": False}})
        answer = testing.Exec(("/usr/bin/sidecar-lifecycle", "uninjected"), stdout=line)
        container = testing.Container("lifecycle", can_connect=True, execs={answer})
        state = testing.State(
            leader=leader,
            planned_units=units,
            containers={container},
            relations=set(self.related),
            config={key.replace("_", "-"): value for key, value in self.config.items()},
            model=testing.Model("kubeflow", type="kubernetes"),
        )
        out = self.ctx.run(event(self.ctx) if event else self.ctx.on.config_changed(), state)
        self.related = [out.get_relation(relation.id) for relation in self.related]
        return out

    def status(self):
        return self.run().unit_status

    def routes(self):
        return sorted(
            obj["metadata"]["name"]
            for obj in self.fake.objects.values()
            if obj["kind"] == "VirtualService"
        )

    def gateway(self):
        return self.fake.find("Gateway", "kubeflow-gateway", "kubeflow")

    def guard(self):
        name = "istio-integrator.kubeflow.istio-integrator"
        return self.fake.find("EnvoyFilter", name, "istio-ingress")


@pytest.fixture
def world(fake):
    return World(fake)


def test_unrelated_ingress_says_and_changes_nothing(world):
    message = world.status().message
    assert "gateway" not in message
    assert "ingress" not in message
    assert world.gateway() is None
    assert not [write for write in world.fake.writes if "gateway" in write]


def test_complete_relations_make_the_model_reachable(world):
    info = testing.Relation("gateway-info", remote_app_name="kserve-controller")
    world.related = [route(), route("dex-auth", prefix="/dex"), auth(), info]
    status = world.status()
    assert isinstance(status, testing.ActiveStatus), status
    assert "2 routes by istio-ingress/istio-ingressgateway" in status.message
    assert len(world.routes()) == 2
    assert world.gateway()["spec"]["selector"] == {"istio": "ingressgateway"}
    assert world.gateway()["spec"]["servers"] == [
        {"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]}
    ]
    assert world.guard()["metadata"]["ownerReferences"][0]["kind"] == "Namespace"
    told = next(one for one in world.related if one.endpoint == "gateway-info")
    assert told.local_app_data["gateway_up"] == "true"


def test_second_event_writes_nothing(world):
    world.related = [*(route(f"app-{n}") for n in range(20)), auth()]
    world.run()
    world.fake.writes.clear()
    world.run()
    assert world.fake.writes == []


def test_guard_is_there_before_the_gateway_and_the_gateway_before_the_routes(world):
    world.related = [route(), auth()]
    world.run()
    order = [
        write.split()[1]
        for write in world.fake.writes
        if "istio-integrator" in write or "kubeflow-gateway" in write
    ]
    kinds = [kind for kind in order if kind in ("envoyfilters", "gateways", "virtualservices")]
    assert kinds == ["envoyfilters", "gateways", "virtualservices"]


@pytest.mark.parametrize(
    "others", [[], [sdi("ingress-auth", "oidc-gatekeeper")], [auth(port="no")]]
)
def test_no_route_without_somebody_to_ask(world, others):
    world.related = [route(), *others]
    status = world.status()
    assert not isinstance(status, testing.ActiveStatus)
    assert "ingress is closed" in status.message
    assert world.routes() == []
    assert "istio-integrator-closed" in json.dumps(world.guard())


def test_closed_gateway_is_said_also_without_routes_of_our_own(world):
    world.related = [testing.Relation("gateway-info", remote_app_name="tensorboard-controller")]
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert "ingress is closed" in status.message
    world.config = {"strict_ingress_auth": False}
    assert isinstance(world.status(), testing.ActiveStatus)
    assert world.gateway() is not None


def test_routes_go_when_ingress_auth_is_broken(world):
    complete = auth()
    world.related = [route(), complete]
    world.run()
    assert len(world.routes()) == 1
    gone = world.related[1]
    world.run(lambda ctx: ctx.on.relation_broken(gone))
    assert world.routes() == []
    assert "istio-integrator-closed" in json.dumps(world.guard())


def test_operator_may_leave_the_ingress_open(world):
    world.config = {"strict_ingress_auth": False}
    world.related = [route()]
    assert isinstance(world.status(), testing.ActiveStatus)
    assert len(world.routes()) == 1
    assert world.guard() is None
    world.related.append(sdi("ingress-auth", "oidc-gatekeeper"))
    world.run()
    assert world.routes() == []


def test_change_of_a_relation_writes_its_own_route_only(world):
    world.related = [route("a"), route("b"), auth()]
    world.run()
    world.fake.writes.clear()
    bag = {**world.related[0].remote_app_data}
    bag["data"] = bag["data"].replace("3000", "3001")
    world.related[0] = dataclasses.replace(world.related[0], remote_app_data=bag)
    world.run()
    assert world.fake.writes == [
        f"patch virtualservices istio-integrator-ingress-{world.related[0].id}"
    ]


def test_malformed_application_is_named_and_the_others_served(world):
    world.related = [route("good"), route("bad", port="no"), auth()]
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert "bad: port='no'" in status.message
    assert len(world.routes()) == 1


def test_shared_gateway_without_hosts_blocks_and_changes_nothing(world):
    neighbour(world.fake)
    world.related = [route(), auth()]
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert "shop/web" in status.message
    assert (world.gateway(), world.guard(), world.routes()) == (None, None, [])


def test_shared_gateway_waits_for_earlier_connections_once(world):
    neighbour(world.fake)
    world.config = {"hosts": "kf.example.com"}
    world.related = [route(), auth()]
    status = world.status()
    assert isinstance(status, testing.WaitingStatus)
    assert "earlier connections" in status.message
    assert (world.gateway(), world.routes()) == (None, [])
    world.guard()["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    assert isinstance(world.status(), testing.ActiveStatus)
    assert world.gateway()["spec"]["servers"][0]["hosts"] == ["kf.example.com"]
    assert len(world.routes()) == 1


def test_gateway_that_was_open_waits_for_its_connections_before_it_asks(world):
    world.config = {"strict_ingress_auth": False}
    world.related = [route()]
    assert isinstance(world.status(), testing.ActiveStatus)
    # It has been open for a while.
    world.gateway()["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    world.related.append(auth())
    status = world.status()
    assert "earlier connections" in status.message
    assert (world.guard() is None, world.routes()) == (False, [])
    world.guard()["metadata"]["creationTimestamp"] = "2020-01-01T01:00:00Z"
    assert isinstance(world.status(), testing.ActiveStatus)
    assert len(world.routes()) == 1


PROVIDER = """
extensionProviders:
- name: oidc
  envoyExtAuthzHttp:
    service: oidc.kubeflow.svc.cluster.local
    port: 8080
    includeRequestHeadersInCheck: [cookie]
    headersToUpstreamOnAllow: [kubeflow-userid]
"""


def policies(world):
    return [
        obj["metadata"]["name"]
        for obj in world.fake.objects.values()
        if obj["kind"] == "AuthorizationPolicy"
    ]


def test_provider_of_the_mesh_asks_in_our_place_as_long_as_it_may(world):
    fake_cluster.install_istio(world.fake, mesh_config=PROVIDER)
    world.related = [route(), auth()]
    assert isinstance(world.status(), testing.ActiveStatus)
    assert policies(world) == ["istio-integrator.kubeflow.istio-integrator"]
    order = [write.split()[1] for write in world.fake.writes]
    assert order.index("envoyfilters") < order.index("authorizationpolicies")
    assert order.index("authorizationpolicies") < order.index("virtualservices")
    # A neighbour's policy with another provider: istiod would refuse what either guards.
    spec = {"action": "CUSTOM", "provider": {"name": "ldap"}}
    metadata = {"name": "theirs", "namespace": "istio-ingress"}
    kind = {"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy"}
    world.fake.add({**kind, "metadata": metadata, "spec": spec})
    world.fake.writes.clear()
    assert isinstance(world.status(), testing.ActiveStatus)
    assert policies(world) == ["theirs"]
    # Our filter asks again before istiod's stop to.
    assert [write.split()[:2] for write in world.fake.writes] == [
        ["patch", "envoyfilters"],
        ["delete", "authorizationpolicies"],
    ]


def test_policy_goes_before_the_filter_when_nobody_may_be_asked_and_when_we_go(world):
    fake_cluster.install_istio(world.fake, mesh_config=PROVIDER)
    world.related = [route(), auth()]
    world.run()
    world.related = [route()]
    world.run()
    assert policies(world) == []
    assert world.guard() is not None
    world.related = [route(), auth()]
    world.run()
    world.fake.writes.clear()
    world.run(lambda ctx: ctx.on.remove(), units=0)
    order = [write.split()[:2] for write in world.fake.writes]
    assert order.index(["delete", "gateways"]) < order.index(["delete", "authorizationpolicies"])
    assert order.index(["delete", "authorizationpolicies"]) < order.index(
        ["delete", "envoyfilters"]
    )


@pytest.mark.parametrize("hosts", ["", "*.kf.example.com"])
def test_newcomer_to_our_gateway_is_left_alone_and_nothing_of_ours_changes(world, hosts):
    world.config = {"hosts": hosts}
    world.related = [route(), auth()]
    assert isinstance(world.status(), testing.ActiveStatus)
    neighbour(world.fake)
    world.fake.writes.clear()
    assert isinstance(world.status(), testing.BlockedStatus)
    assert [write.split()[:2] for write in world.fake.writes] == [["patch", "envoyfilters"]]
    *_, spared = world.guard()["spec"]["configPatches"]
    assert spared["match"]["routeConfiguration"] == {"vhost": {"name": "shop.example.com:80"}}
    # Nor is the model opened when its authentication goes meanwhile.
    world.related = [route()]
    world.run()
    assert "istio-integrator-closed" in json.dumps(world.guard())


def test_refused_options_for_another_gateway_leave_the_guard_where_it_is(world):
    world.related = [route(), auth()]
    world.run()
    install_gateway(world.fake, "elsewhere")
    neighbour(world.fake)
    before = world.guard()
    world.config = {"gateway_service": "elsewhere/istio-ingressgateway"}
    world.fake.find("Gateway", "kubeflow-gateway", "kubeflow")["spec"]["selector"] = {"a": "b"}
    assert isinstance(world.status(), testing.BlockedStatus)
    assert world.guard() == before


def order_of(world):
    names = {"envoyfilters": "guard", "gateways": "gateway", "virtualservices": "routes"}
    found = [write.split() for write in world.fake.writes]
    return [f"{verb} {names[kind]}" for verb, kind, _ in found if kind in names]


def test_other_hosts_are_guarded_before_and_old_ones_until_they_are_forgotten(world):
    world.related = [route(), auth()]
    world.config = {"hosts": "kf.example.com"}
    world.run()
    world.fake.writes.clear()
    world.config = {"hosts": "ai.example.com"}
    world.run()
    assert order_of(world) == [
        "delete routes",
        "delete gateway",
        "patch guard",
        "patch gateway",
        "patch routes",
    ]


def test_other_gateway_is_guarded_before_the_routes_move_there(world):
    world.related = [route(), auth()]
    world.run()
    world.fake.writes.clear()
    world.config = {"gateway_workload": True}
    world.run()
    assert order_of(world) == [
        "delete routes",
        "delete gateway",
        "delete guard",
        "patch guard",
        "patch gateway",
        "patch routes",
    ]
    assert world.guard() is None
    name = "istio-integrator.kubeflow.istio-integrator"
    assert world.fake.find("EnvoyFilter", name, "kubeflow")


def test_scoped_istiod_blocks(world):
    world.fake.add(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "istiod", "namespace": "istio-system"},
            "spec": {
                "template": {
                    "spec": {
                        "containers": [
                            {
                                "env": [
                                    {"name": "PILOT_SCOPE_GATEWAY_TO_NAMESPACE", "value": "true"}
                                ]
                            }
                        ]
                    }
                }
            },
        }
    )
    world.related = [route(), auth()]
    assert "PILOT_SCOPE_GATEWAY_TO_NAMESPACE" in world.status().message


def test_foreign_gateway_of_the_name_is_left_alone(world):
    foreign = neighbour(world.fake)
    world.fake.delete("Gateway", "web", "shop")
    foreign["metadata"] = {"name": "kubeflow-gateway", "namespace": "kubeflow"}
    world.fake.add(foreign)
    world.related = [route(), auth()]
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert "kubeflow/kubeflow-gateway exists and is not ours" in status.message


def test_missing_gateway_is_waited_for(world):
    world.fake.delete("Deployment", "istio-ingressgateway", "istio-ingress")
    info = testing.Relation("gateway-info", remote_app_name="kserve-controller")
    world.related = [route(), auth(), info]
    status = world.status()
    assert isinstance(status, testing.WaitingStatus)
    assert "ingress gateway" in status.message
    assert world.related[2].local_app_data["gateway_up"] == "false"


def test_removal_takes_the_guard_last(world):
    world.related = [route(), auth()]
    world.run()
    world.fake.writes.clear()
    world.run(lambda ctx: ctx.on.remove(), units=0)
    deleted = [write.split()[1] for write in world.fake.writes if write.startswith("delete")]
    kinds = [kind for kind in deleted if kind in ("envoyfilters", "gateways", "virtualservices")]
    assert kinds == ["virtualservices", "gateways", "envoyfilters"]


def test_guard_outlives_the_last_relation_by_one_event(world):
    world.related = [route(), auth()]
    world.run()
    world.related = []
    world.run()
    assert (world.routes(), world.gateway()) == ([], None)
    assert world.guard() is not None
    world.run()
    assert world.guard() is None


def test_secret_of_the_operator_is_used_once_it_is_there(world):
    world.config = {"tls_secret": "kubeflow-tls", "https_redirect": True}
    world.related = [route(), auth()]
    status = world.status()
    assert "tls-secret: there is no Secret istio-ingress/kubeflow-tls" in status.message
    (plain,) = world.gateway()["spec"]["servers"]
    assert plain["tls"] == {"httpsRedirect": True}
    metadata = {"name": "kubeflow-tls", "namespace": "istio-ingress"}
    world.fake.add({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    assert isinstance(world.status(), testing.ActiveStatus)
    plain, secure = world.gateway()["spec"]["servers"]
    assert plain["tls"] == {"httpsRedirect": True}
    assert secure["tls"]["credentialName"] == "kubeflow-tls"
    assert secure["port"] == {"number": 443, "name": "https", "protocol": "HTTPS"}
    world.fake.delete("Secret", "kubeflow-tls", "istio-ingress")
    assert "there is no Secret" in world.status().message
    assert len(world.gateway()["spec"]["servers"]) == 2


def test_gateway_without_a_port_for_https_says_so(world):
    service = world.fake.find("Service", "istio-ingressgateway", "istio-ingress")
    del service["spec"]["ports"][1]
    metadata = {"name": "kubeflow-tls", "namespace": "istio-ingress"}
    world.fake.add({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    world.config = {"tls_secret": "kubeflow-tls"}
    world.related = [route(), auth()]
    message = world.status().message
    assert "Service istio-ingress/istio-ingressgateway has no port for HTTPS" in message


def test_istiod_is_told(world):
    relation = testing.Relation("istio-pilot", remote_app_name="gateway")
    world.related = [relation]
    world.run()
    bag = world.related[0].local_app_data
    assert yaml.safe_load(bag["data"])["service-name"] == "istiod.istio-system.svc"
    assert yaml.safe_load(bag["_supported_versions"]) == ["v1"]


def test_certificate_is_asked_for_and_handed_to_the_gateway(world):
    authority = testing.Relation("certificates", remote_app_name="self-signed-certificates")
    world.config = {"hosts": "kf.example.com"}
    world.related = [route(), auth(), authority]
    status = world.status()
    assert "waiting for a certificate" in status.message
    request = relations_certificates.own_request(world.related[2].local_app_data)
    assert "BEGIN CERTIFICATE REQUEST" in request
    # Plain HTTP is served in the meantime.
    assert len(world.gateway()["spec"]["servers"]) == 1
    world.run()
    assert relations_certificates.own_request(world.related[2].local_app_data) == request


class Authority(ops.CharmBase):
    """A charm that signs whatever it is asked to, by the library of such charms."""

    key = tls_certificates.PrivateKey.generate()
    life = datetime.timedelta(days=90)

    def __init__(self, framework):
        super().__init__(framework)
        self.certificates = tls_certificates.TLSCertificatesProvidesV4(self, "certificates")
        framework.observe(self.on["certificates"].relation_changed, self._on_changed)

    def _on_changed(self, _):
        attributes = tls_certificates.CertificateRequestAttributes(common_name="authority")
        ca = tls_certificates.Certificate.generate_self_signed_ca(attributes, self.key, self.life)
        for request in self.certificates.get_outstanding_certificate_requests():
            signed = request.certificate_signing_request.sign(ca, self.key, self.life)
            self.certificates.set_relation_certificate(
                tls_certificates.ProviderCertificate(
                    relation_id=request.relation_id,
                    certificate=signed,
                    certificate_signing_request=request.certificate_signing_request,
                    ca=ca,
                    chain=[signed, ca],
                )
            )


def sign(world):
    """Let the authority answer what was asked; it answers a request once."""
    ours = world.related[-1]
    meta = {"name": "authority", "provides": {"certificates": {"interface": "tls-certificates"}}}
    ctx = testing.Context(Authority, meta=meta)
    relation = testing.Relation(
        "certificates",
        interface="tls-certificates",
        remote_app_data=ours.local_app_data,
        local_app_data=ours.remote_app_data,
    )
    state = testing.State(leader=True, relations={relation})
    out = ctx.run(ctx.on.relation_changed(relation), state).get_relation(relation.id)
    world.related[-1] = dataclasses.replace(ours, remote_app_data=out.local_app_data)


@pytest.fixture
def certified(world):
    world.config = {"hosts": "kf.example.com", "https_redirect": True}
    world.related = [route(), auth(), testing.Relation("certificates", remote_app_name="ca")]
    world.run()
    sign(world)
    return world


def shown(world):
    secret = world.fake.find(
        "Secret", "istio-integrator.kubeflow.istio-integrator", "istio-ingress"
    )
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}


def test_certificate_of_the_library_reaches_the_gateway(certified):
    assert isinstance(certified.status(), testing.ActiveStatus)
    plain, secure = certified.gateway()["spec"]["servers"]
    assert plain["tls"] == {"httpsRedirect": True}
    assert secure["tls"]["credentialName"] == "istio-integrator.kubeflow.istio-integrator"
    certificate = tls_certificates.Certificate.from_string(shown(certified)["tls.crt"])
    key = tls_certificates.PrivateKey.from_string(shown(certified)["tls.key"])
    assert certificate.matches_private_key(key)
    assert certificate.sans_dns == {"kf.example.com"}
    assert shown(certified)["tls.crt"].count("BEGIN CERTIFICATE") == 2
    certified.fake.writes.clear()
    certified.run()
    assert certified.fake.writes == []


def test_certificate_is_renewed_while_the_old_one_serves(certified, monkeypatch):
    certified.run()
    before = shown(certified)["tls.crt"]
    request = relations_certificates.own_request(certified.related[-1].local_app_data)
    with monkeypatch.context() as patch:
        patch.setattr(relations_certificates, "RENEW_AT", -1)
        certified.run()
    renewal = relations_certificates.own_request(certified.related[-1].local_app_data)
    assert renewal != request
    certified.run()
    assert shown(certified)["tls.crt"] == before
    assert len(certified.gateway()["spec"]["servers"]) == 2
    sign(certified)
    certified.run()
    assert shown(certified)["tls.crt"] != before


def test_other_hosts_need_another_certificate(certified):
    certified.run()
    request = relations_certificates.own_request(certified.related[-1].local_app_data)
    certified.config["hosts"] = "ai.example.com"
    certified.run()
    other = relations_certificates.own_request(certified.related[-1].local_app_data)
    assert other != request


def test_broken_authority_takes_https_away(certified):
    certified.run()
    certified.related = certified.related[:2]
    assert isinstance(certified.status(), testing.ActiveStatus)
    assert len(certified.gateway()["spec"]["servers"]) == 1
    assert not [obj for obj in certified.fake.objects.values() if obj["kind"] == "Secret"]


def secrets(world):
    found = [obj["metadata"] for obj in world.fake.objects.values() if obj["kind"] == "Secret"]
    return sorted(each["namespace"] for each in found)


def test_certificate_follows_the_gateway_also_without_a_look_into_every_namespace(certified):
    certified.fake.forbidden.add(("list", "secrets", ""))
    certified.run()
    assert secrets(certified) == ["istio-ingress", "kubeflow"]
    certified.config["gateway_workload"] = True
    certified.run()
    assert secrets(certified) == ["kubeflow", "kubeflow"]
    certified.config["gateway_workload"] = False
    certified.run()
    certified.run(lambda ctx: ctx.on.remove(), units=0)
    assert secrets(certified) == []


@pytest.mark.parametrize(
    ("bag", "words"),
    [
        ({"certificates": "no JSON"}, "waiting for a certificate"),
        ({"certificates": "[1]"}, "waiting for a certificate"),
        (
            lambda csr: {"request_errors": [{"csr": csr, "error": {"message": "not here"}}]},
            "not here",
        ),
        (
            lambda csr: {
                "certificates": [{"certificate_signing_request": csr, "certificate": "x"}]
            },
            "not for our request",
        ),
    ],
)
def test_authority_that_gives_no_good_certificate_is_waited_for(certified, bag, words):
    csr = relations_certificates.own_request(certified.related[-1].local_app_data)
    if callable(bag):
        bag = {key: json.dumps(value) for key, value in bag(csr).items()}
    certified.related[-1] = dataclasses.replace(certified.related[-1], remote_app_data=bag)
    status = certified.status()
    assert words in status.message
    assert len(certified.routes()) == 1


def test_annotations_of_the_gateways_service_are_set_and_restored(world):
    world.config = {
        "gateway_service": "istio-ingress/istio-ingressgateway",
        "gateway_service_annotations": "{example.com/name: kf}",
    }
    world.related = [route(), auth()]
    assert isinstance(world.status(), testing.ActiveStatus)
    service = world.fake.find("Service", "istio-ingressgateway", "istio-ingress")
    assert service["metadata"]["annotations"]["example.com/name"] == "kf"
    world.fake.writes.clear()
    world.run()
    assert world.fake.writes == []
    world.run(lambda ctx: ctx.on.remove(), units=0)
    service = world.fake.find("Service", "istio-ingressgateway", "istio-ingress")
    assert service["metadata"].get("annotations", {}) == {}
    assert service["metadata"].get("labels", {}) == {}


def test_gateway_workload_of_our_own_serves_the_routes(world):
    world.config = {"gateway_workload": True}
    world.related = [route(), auth()]
    status = world.status()
    assert "gateway kubeflow/istio-integrator-gateway is not ready" in status.message
    deployment = world.fake.find("Deployment", "istio-integrator-gateway", "kubeflow")
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "true"
    assert "app.kubernetes.io/name" not in template["metadata"]["labels"]
    selector = world.gateway()["spec"]["selector"]
    assert selector.items() <= template["metadata"]["labels"].items()
    deployment["status"] = {"readyReplicas": 2}
    assert "1 route by kubeflow/istio-integrator-gateway" in world.status().message
    world.config = {}
    world.run()
    assert world.fake.find("Deployment", "istio-integrator-gateway", "kubeflow") is None
    assert world.gateway()["spec"]["selector"] == {"istio": "ingressgateway"}


def test_role_for_a_gateway_of_our_own_is_only_needed_with_one(world):
    world.fake.forbidden |= {("list", "rolebindings"), ("list", "roles")}
    world.related = [route(), auth()]
    assert "1 route by istio-ingress/istio-ingressgateway" in world.status().message


def reached(monkeypatch):
    """Set up another cluster with a model that wants to be reached, over HTTPS too."""
    fake = fake_cluster.FakeCluster()
    for name in ("kubeflow", "default"):
        fake.namespace(name)
    fake.node()
    fake_cluster.install_istio(fake)
    install_gateway(fake)
    monkeypatch.setattr(charm_cluster, "connect", fake.api)
    world = World(fake)
    world.config = {
        "hosts": "kubeflow.example.com",
        "gateway_service": "istio-ingress/istio-ingressgateway",
        "gateway_service_annotations": "{a.b/c: d}",
    }
    world.related = [route(), auth(), testing.Relation("certificates", remote_app_name="ca")]
    return world


@pytest.fixture
def of_the_ingress(monkeypatch):
    """What is asked of the API server only for the sake of the ingress, by verb and resource."""
    world = reached(monkeypatch)
    world.run()
    asked = set(world.fake.asked)
    alone = reached(monkeypatch)
    alone.related = []
    alone.run()
    return sorted(asked - alone.fake.asked)


@pytest.mark.parametrize("code", [403, 404, 409, 429, 500, TIMEOUT])
def test_whatever_request_for_the_ingress_fails_is_a_status_and_is_repaired(
    monkeypatch, of_the_ingress, code
):
    assert {resource for _, resource in of_the_ingress} >= {"envoyfilters", "secrets", "services"}
    for verb, resource in of_the_ingress:
        world = reached(monkeypatch)
        if code == TIMEOUT:
            world.fake.timeouts.add((verb, resource))
        else:
            world.fake.broken[verb, resource] = code
        said = world.status()
        assert said.name in {"active", "blocked", "waiting"}, (verb, resource, said)
        world.fake.timeouts.clear()
        world.fake.broken.clear()
        world.run(lambda ctx: ctx.on.update_status())
        assert len(world.routes()) == 1, (verb, resource)
        assert world.guard(), (verb, resource)


def test_other_charms_learn_mesh_and_gateway(world):
    world.related = [testing.Relation("mesh-info", remote_app_name="learner")]
    world.run()
    bag = world.related[0].local_app_data
    assert bag["root_namespace"] == "istio-system"
    assert bag.get("gateway_name", "") == ""
    world.related += [route(), auth()]
    world.run()
    bag = world.related[0].local_app_data
    assert bag["gateway_workload_namespace"] == "istio-ingress"
    assert (bag["gateway_namespace"], bag["revision"]) == ("kubeflow", "default")
    # It serves on while it is not known which one it is to be.
    world.fake.delete("Service", "istio-ingressgateway", "istio-ingress")
    assert isinstance(world.status(), testing.WaitingStatus)
    assert world.related[0].local_app_data["gateway_name"] == "kubeflow-gateway"
    world.related = world.related[:1]
    world.run()
    assert world.related[0].local_app_data.get("gateway_name", "") == ""


def test_gateways_are_observed_while_somebody_is_related(world):
    def observes():
        plan = world.run().get_container("lifecycle").plan
        return "--observe-gateways true" in plan.services["lifecycle"].command

    assert not observes()
    world.related = [route(), auth()]
    assert observes()


def test_gateway_with_https_alone_needs_a_certificate(world):
    service = world.fake.find("Service", "istio-ingressgateway", "istio-ingress")
    service["spec"]["ports"] = [{"name": "https", "port": 443}]
    world.related = [route(), auth()]
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert "integrate certificates or set tls-secret" in status.message
    assert world.gateway() is None


def test_unit_that_does_not_lead_changes_and_says_nothing(world):
    world.related = [route(), auth()]
    world.run(leader=False)
    assert (world.gateway(), world.guard(), world.routes()) == (None, None, [])


def test_ingress_without_rights_to_look_at_gateways_says_which(world):
    world.fake.forbidden.add(("list", "gateways"))
    world.related = [route(), auth()]
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert "may not list gateways" in status.message


def test_unrelated_ingress_needs_no_rights(world):
    for verb in ("get", "list"):
        for kind in ("gateways", "virtualservices", "envoyfilters"):
            world.fake.forbidden.add((verb, kind))
    assert isinstance(world.status(), testing.ActiveStatus)
