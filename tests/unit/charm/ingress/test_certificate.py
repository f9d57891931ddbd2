"""The certificate of the gateway, from an authority or an operator's Secret."""

import base64
import dataclasses
import json

import pytest
import yaml
from charmlibs.interfaces import tls_certificates
from ops import testing

from tests.unit.charm.ingress_world import (
    OWN,
    auth,
    authority,
    renew,
    request,
    route,
    secret,
    secrets,
    shown,
    sign,
)


def test_secret_of_the_operator_is_used_once_it_is_there(world):
    world.config = {"tls_secret": "kubeflow-tls", "https_redirect": True}
    world.related = [route(), auth()]
    status = world.status()
    assert "tls-secret: there is no Secret istio-ingress/kubeflow-tls" in status.message
    (plain,) = world.gateway()["spec"]["servers"]
    assert plain["tls"] == {"httpsRedirect": True}
    world.fake.put("Secret", "kubeflow-tls", "istio-ingress")
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
    world.fake.put("Secret", "kubeflow-tls", "istio-ingress")
    world.config = {"tls_secret": "kubeflow-tls"}
    world.related = [route(), auth()]
    message = world.status().message
    assert "Service istio-ingress/istio-ingressgateway has no port for HTTPS" in message


def test_certificate_is_asked_for_and_handed_to_the_gateway(world):
    world.config = {"hosts": "kf.example.com"}
    world.related = [route(), auth(), authority()]
    status = world.status()
    assert "waiting for a certificate" in status.message
    asked = request(world)
    assert "BEGIN CERTIFICATE REQUEST" in asked
    # Plain HTTP is served in the meantime.
    assert len(world.gateway()["spec"]["servers"]) == 1
    world.run()
    assert request(world) == asked


@pytest.fixture
def certified(world):
    world.config = {"hosts": "kf.example.com", "https_redirect": True}
    world.related = [route(), auth(), authority()]
    world.run()
    sign(world)
    return world


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


def test_certificate_is_renewed_while_the_old_one_serves(certified):
    certified.run()
    before = shown(certified)["tls.crt"]
    asked = request(certified)
    renew(certified)
    assert request(certified) != asked
    certified.run()
    assert shown(certified)["tls.crt"] == before
    assert len(certified.gateway()["spec"]["servers"]) == 2
    sign(certified)
    certified.run()
    assert shown(certified)["tls.crt"] != before


def test_host_that_is_too_long_for_a_common_name_is_requested(world):
    host = f"{'a' * 60}.example.com"
    world.config = {"hosts": host}
    world.related = [route(), auth(), authority()]
    world.run()
    asked = request(world)
    assert tls_certificates.CertificateSigningRequest.from_string(asked).sans_dns == {host}
    world.run()
    assert request(world) == asked


def test_invalid_option_withdraws_no_request(certified):
    certified.run()
    asked = request(certified)
    certified.config["routing"] = "x"
    assert isinstance(certified.status(), testing.BlockedStatus)
    assert request(certified) == asked


def test_other_hosts_need_another_certificate(certified):
    certified.run()
    asked = request(certified)
    certified.config["hosts"] = "ai.example.com"
    certified.run()
    assert request(certified) != asked


def test_certificate_needs_hosts(world):
    world.config = {**OWN, "hosts": ""}
    world.related = [route(), auth(), authority()]
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert "certificates needs hosts" in status.message
    assert len(world.gateway()["spec"]["servers"]) == 1


def test_certificate_in_another_namespace_is_shown_as_ours(certified):
    certified.run()
    certified.run(lambda ctx: ctx.on.action("show-manifests"))
    manifests = yaml.safe_load_all(certified.ctx.action_results["manifests"])
    shown_secrets = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in manifests
        if each["kind"] == "Secret"
    }
    assert shown_secrets >= {
        ("istio-ingress", "istio-integrator.kubeflow.istio-integrator"),
        ("kubeflow", "istio-integrator-record"),
    }


def test_certificate_follows_the_gateway_also_without_a_look_into_every_namespace(certified):
    certified.fake.forbidden.add(("list", "secrets", ""))
    certified.run()
    assert secrets(certified) == ["istio-ingress"]
    certified.config |= OWN
    certified.run()
    assert secrets(certified) == ["kubeflow"]
    del certified.config["gateway_service"]
    certified.run()
    certified.remove()
    assert secrets(certified) == []


@pytest.mark.parametrize("text", ["%%%", base64.b64encode(b"\xff").decode(), ""])
def test_whatever_the_operators_secret_holds_is_the_gateways_to_judge(world, text):
    secret(world.fake, "kubeflow-tls", "istio-ingress")["data"]["tls.crt"] = text
    world.config = {"tls_secret": "kubeflow-tls"}
    world.related = [route(), auth()]
    assert isinstance(world.status(), testing.ActiveStatus)
    assert len(world.gateway()["spec"]["servers"]) == 2


def test_authority_that_refuses_a_certificate_is_quoted(certified):
    error = {"code": 102, "name": "x", "message": "not here"}
    bag = {"request_errors": json.dumps([{"csr": request(certified), "error": error}])}
    certified.related[-1] = dataclasses.replace(certified.related[-1], remote_app_data=bag)
    assert "not here" in certified.status().message
    assert len(certified.routes()) == 1


def test_certificate_serves_on_while_the_authority_sends_none_that_can_be_read(certified):
    certified.run()
    before, asked, good = shown(certified), request(certified), certified.related[-1]
    (issued,) = json.loads(good.remote_app_data["certificates"])
    for broken in ("no JSON", "[1]", json.dumps([{**issued, "chain": ["x"]}])):
        certified.related[-1] = dataclasses.replace(
            certified.related[-1], remote_app_data={"certificates": broken}
        )
        status = certified.status()
        assert isinstance(status, testing.BlockedStatus)
        assert f"certificates:{good.id} self-signed-certificates: " in status.message
        assert shown(certified) == before
        assert len(certified.gateway()["spec"]["servers"]) == 2
    certified.related[-1] = dataclasses.replace(
        certified.related[-1], remote_app_data=good.remote_app_data
    )
    assert isinstance(certified.status(), testing.ActiveStatus)
    assert request(certified) == asked
    certified.related = certified.related[:2]
    assert isinstance(certified.status(), testing.ActiveStatus)
    assert len(certified.gateway()["spec"]["servers"]) == 1
    assert secrets(certified) == []


def test_gateway_with_https_alone_needs_a_certificate(world):
    service = world.fake.find("Service", "istio-ingressgateway", "istio-ingress")
    service["spec"]["ports"] = [{"name": "https", "port": 443}]
    world.related = [route(), auth()]
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert "integrate certificates or set tls-secret" in status.message
    assert world.gateway() is None
