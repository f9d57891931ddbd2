"""Which authorization service authenticates requests, or why every request is rejected."""

import json

import ops
import pytest
from ops import testing

from istio_integrator.relations import kubeflow
from tests.unit.cases import cases
from tests.unit.charm import charm_world
from tests.unit.charm.diagnosis.world import diagnose_ingress
from tests.unit.charm.ingress_world import AUTH, auth, is_closed, route, sdi

ADDRESS = "http://oidc.kf.svc.cluster.local:4180/decisions"


def forwarding(application="oauth2-proxy", address=ADDRESS, **changes):
    bag = {"decisions_address": address, "app_names": "[]", "headers": '["X-User"]', **changes}
    return testing.Relation("forward-auth", remote_app_name=application, remote_app_data=bag)


def silent():
    return testing.Relation("forward-auth", remote_app_name="oauth2-proxy")


def asked(world):
    """The filter that asks the authorization service."""
    patches = [each["patch"]["value"] for each in world.guard()["spec"]["configPatches"]]
    (found,) = [each for each in patches if each.get("name", "").endswith(".authorize")]
    return found["typed_config"]


def headers(listed):
    return [each["exact"] for each in listed["patterns"]]


NO_SERVICES = (
    *("sso.example.com", "oidc", "oidc.sso", "oidc-0.oidc.sso.svc.cluster.local"),
    *("oidc.sso.svc.other.example", "oidc.sso.svc.cluster.local.example.com", "oi_dc.sso.svc"),
    *("10.0.0.1", "[::1]", "localhost", "a" * 64 + ".sso.svc"),
)


@cases(
    ("related", "words"),
    empty=([sdi("ingress-auth", "oidc-gatekeeper")], "waiting for oidc-gatekeeper on ingress"),
    malformed=([auth(port="no")], "ingress-auth of oidc-gatekeeper: port"),
    several=([auth(), sdi("ingress-auth", "a", **AUTH)], "keep one of a, oidc-gatekeeper"),
    no_service=([auth(service="gone")], "waiting for Service kf/gone of oidc-gatekeeper"),
    elsewhere=([auth(namespace="team")], "waiting for Service team/oidc of oidc-gatekeeper"),
    nothing_on_forward_auth=([silent()], "waiting for oauth2-proxy on forward-auth"),
    forwarded_to_no_service=(
        [forwarding(address=ADDRESS.replace("oidc", "gone"))],
        "waiting for Service kf/gone of oauth2-proxy",
    ),
    many_spellings=(
        [auth(**{"allowed-response-headers": [f"x-a-b-c-{number}" for number in range(64)]})],
        "ingress-auth of oidc-gatekeeper: its response headers have 1028 spellings, and 900 are",
    ),
    hostile=([forwarding(headers="[" * 2000)], "forward-auth of oauth2-proxy: headers"),
    two_on_forward_auth=([forwarding(), forwarding("other")], "keep one of oauth2-proxy, other"),
    both=(
        [auth(), forwarding()], "oidc-gatekeeper on ingress-auth and oauth2-proxy on forward-auth",
    ),
    both_silent=([sdi("ingress-auth", "oidc-gatekeeper"), silent()], "both authenticate requests"),
    **{
        host: ([forwarding(address=f"http://{host}:80")], f"the host {host.strip('[]')}, which is")
        for host in NO_SERVICES
    },
)  # fmt: skip
def test_gateway_is_closed_until_one_service_authenticates(world, related, words):
    """Also where the operator allows requests without authentication."""
    world.config = {"require_authentication": False}
    world.related = [route(), *related]
    status = world.hook().unit_status
    assert status.name in ("blocked", "waiting")
    assert "ingress is closed: " in status.message
    assert words in status.message
    assert status.message.isprintable()
    assert is_closed(world.guard())


def test_without_a_relation_the_option_decides(world):
    world.related = [route()]
    status = world.status()
    assert status.message.startswith(
        "ingress is closed: authentication is missing; "
        "run: juju integrate mesh-2:ingress-auth NAME; "
    )
    assert is_closed(world.guard())
    world.config = {"require_authentication": False}
    assert world.status().name == "active"
    assert not is_closed(world.guard())


def test_gateway_stays_closed_while_juju_has_no_data_of_the_service(world, monkeypatch):
    world.config = {"require_authentication": False}
    world.related = [route(), auth()]
    read = ops.RelationData.__getitem__

    def refuse(data, key):
        if key.name == "oidc-gatekeeper":
            raise ops.ModelError("ERROR application not found")
        return read(data, key)

    monkeypatch.setattr(ops.RelationData, "__getitem__", refuse)
    awaited = "ingress is closed: waiting for oidc-gatekeeper on ingress-auth"
    assert world.hook().unit_status.message.startswith(awaited)
    assert is_closed(world.guard())


@cases(
    ("related", "uri", "path"),
    ingress_auth=(auth(), "http://oidc.kf.svc.cluster.local:8080", ""),
    in_another_namespace=(auth(namespace="sso"), "http://oidc.sso.svc.cluster.local:8080", ""),
    forward_auth=(forwarding(), "http://oidc.kf.svc.cluster.local:4180", "/decisions"),
    slash=(
        forwarding(address="http://oidc.sso.svc.cluster.local.:4181/auth/"),
        "http://oidc.sso.svc.cluster.local:4181", "/auth",
    ),
    no_domain=(
        forwarding(address="http://oidc.sso.svc:4180"), "http://oidc.sso.svc.cluster.local:4180",
        "",
    ),
)  # fmt: skip
def test_service_is_asked_at_the_address_that_its_application_names(world, related, uri, path):
    world.fake.put("Service", "oidc", "sso")
    world.related = [route(), related]
    status = world.status()
    assert status.name == "active", status
    service = asked(world)["http_service"]
    assert service["server_uri"]["uri"] == uri
    assert service.get("path_prefix", "") == path


KUBELET = "search kf.svc.{0} svc.{0} {0} example.com\nnameserver 10.96.0.10\n"


@cases(
    ("resolver", "domain", "related"),
    usual=(KUBELET.format("cluster.local"), "cluster.local", forwarding()),
    another=(KUBELET.format("corp.example"), "corp.example", forwarding()),
    another_that_the_address_has=(
        KUBELET.format("corp.example"), "corp.example",
        forwarding(address=ADDRESS.replace("cluster.local", "corp.example")),
    ),
    with_a_dot=(KUBELET.format("corp.example."), "corp.example", auth(port=4180)),
    of_no_pod=("nameserver 192.0.2.1\nsearch example.com\n", "cluster.local", auth(port=4180)),
    nothing_to_search=("search\n", "cluster.local", forwarding()),
)  # fmt: skip
def test_service_has_the_domain_that_pods_search_and_the_default_domain_means_it(
    world, monkeypatch, resolver, domain, related
):
    charm_world.search(monkeypatch, resolver)
    world.related = [route(), related]
    world.hook()
    uri = asked(world)["http_service"]["server_uri"]["uri"]
    assert uri == f"http://oidc.kf.svc.{domain}:4180"
    (found,) = world.all("VirtualService")
    (backend,) = found["spec"]["http"][0]["route"]
    assert backend["destination"]["host"] == f"kfp-ui.kf.svc.{domain}"
    (found,) = diagnose_ingress(world, "routes")
    assert "Service kf/kfp-ui does not exist" in found.seen


def test_most_headers_that_a_gateway_can_write_are_guarded(world):
    # 56 times 16 spellings, and 2 of each identity header of Kubeflow.
    found = [f"x-a-b-c-{number}" for number in range(56)]
    world.related = [route(), auth(**{"allowed-response-headers": found})]
    assert world.status().name == "active"
    (last,) = (
        each["patch"]["value"]["request_headers_to_add"]
        for each in world.guard()["spec"]["configPatches"]
        if each["applyTo"] == "ROUTE_CONFIGURATION"
    )
    assert len(last) == 900


def test_service_gets_and_sets_the_headers_that_its_application_names(world):
    world.related = [route(), auth()]
    world.hook()
    found = asked(world)
    assert (found["failure_mode_allow"], found["transport_api_version"]) == (False, "V3")
    assert headers(found["allowed_headers"]) == ["cookie"]
    asking = found["http_service"]
    assert asking["server_uri"] == {
        "uri": "http://oidc.kf.svc.cluster.local:8080",
        "cluster": "outbound|8080||oidc.kf.svc.cluster.local",
        "timeout": "10s",
    }
    assert "authorization_request" not in asking
    assert {key: headers(each) for key, each in asking["authorization_response"].items()} == {
        "allowed_client_headers_on_success": ["set-cookie"],
        "allowed_upstream_headers": ["kubeflow-userid"],
        "dynamic_metadata_from_headers": ["kubeflow-userid"],
    }
    # Envoy refuses an empty list of patterns.
    empty = {f"allowed-{each}-headers": [] for each in ("request", "response")}
    world.related = [route(), auth(**empty)]
    world.hook()
    assert "allowed_headers" not in asked(world)
    answered = asked(world)["http_service"]["authorization_response"]
    assert {*answered} == {"allowed_client_headers_on_success"}
    # It has no identity header that applications get.
    world.related = [route(), auth(**{"allowed-response-headers": ["cookie"]})]
    world.hook()
    assert {*asked(world)["http_service"]["authorization_response"]} == {
        *("allowed_client_headers_on_success", "allowed_upstream_headers")
    }
    world.related = [route(), forwarding()]
    world.hook()
    given = ["accept", "cookie", "x-auth-token", "x-forwarded-for", "x-forwarded-proto"]
    assert headers(asked(world)["allowed_headers"]) == given
    asking = asked(world)["http_service"]
    told = asking["authorization_response"]["allowed_upstream_headers"]
    assert headers(told) == ["x-user", "kubeflow-userid", "kubeflow-groups"]
    added = asking["authorization_request"]["headers_to_add"]
    described = {each["key"]: each["value"] for each in added}
    assert described == {
        "x-forwarded-method": "%REQ(:method)%",
        "x-forwarded-host": "%REQ(:authority)%",
        "x-forwarded-uri": "%REQ(:path)%",
    }


def test_two_ways_to_ask_close_and_both_are_named_with_what_to_remove(world, caplog):
    world.related = [route(), forwarding()]
    world.run()
    assert len(world.routes()) == 1
    world.related.append(auth())
    world.run()
    assert is_closed(world.guard())
    assert "run: juju remove-relation mesh-2:forward-auth oauth2-proxy" in caplog.text
    world.related.pop()
    world.run()
    assert not is_closed(world.guard())
    gone = world.related[1]
    world.run(lambda ctx: ctx.on.relation_broken(gone))
    assert is_closed(world.guard())


def test_application_on_forward_auth_is_told_whose_routes_there_are(world):
    others = [f"{kubeflow.INGRESS_ROUTE}{end}" for end in ("", "-unauthenticated")]
    others = [testing.Relation(each, remote_app_name=f"a{n}") for n, each in enumerate(others)]
    world.related = [route(), route("dex-auth", prefix="/dex"), forwarding(), *others]
    world.run()
    told = world.related[2].local_app_data["ingress_app_names"]
    assert json.loads(told) == ["a0", "a1", "dex-auth", "kfp-ui"]
    world.fake.writes.clear()
    world.run()
    assert world.fake.writes == []


def test_closed_gateway_is_said_before_what_else_is_waited_for_or_refused(world):
    unwritten = testing.Relation("istio-ingress-route", remote_app_name="dashboard")
    world.related = [route(), unwritten, silent()]
    assert world.status() == testing.WaitingStatus(
        "ingress is closed: waiting for oauth2-proxy on forward-auth; +1 more"
    )
    world.related = [route(prefix="no path"), forwarding(), auth()]
    assert "ingress is closed: oidc-gatekeeper on ingress-auth" in world.status().message


@pytest.mark.parametrize("endpoint", ["forward-auth", "gateway-info", "istio-ingress-route"])
def test_gateway_is_closed_for_other_teams_routes_too(world, endpoint):
    world.related = [testing.Relation(endpoint, remote_app_name="other")]
    assert "ingress is closed" in world.status().message
    assert world.gateway() is not None
    assert is_closed(world.guard())
    world.related = []
    world.run()
    assert world.gateway() is None
