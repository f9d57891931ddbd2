"""The certificate of the gateway, from an authority or an operator's Secret."""

import dataclasses
import datetime
import json

import pytest
import yaml
from charmlibs.interfaces import tls_certificates
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from ops import testing

from tests import signing, tls_pairs
from tests.unit.cases import cases
from tests.unit.charm.diagnosis.world import diagnose_ingress
from tests.unit.charm.ingress_world import (
    HOST,
    OURS,
    OWN,
    OWNER,
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

COPY = f"istio-integrator.kf.{OURS}"
"""The Secret that the Gateway names."""
WHERE = "istio-ingress/istio-ingressgateway"
ABSENT = "Secret istio-ingress/kubeflow-tls: not found"


@pytest.fixture
def secured(world):
    """A model that is served with a Secret of the operator."""
    world.config = {"tls_secret": "kubeflow-tls"}
    world.related = [route(), auth()]
    secret(world.fake, "kubeflow-tls", "istio-ingress")
    status = world.status()
    assert (status.name, "certificate" in status.message) == ("active", False)
    return world


def hosts(world):
    """The hosts of the Gateway, by port, without random ones."""
    return {
        server["port"]["number"]: [host for host in server["hosts"] if len(host) < len(RANDOM)]
        for server in world.gateway()["spec"]["servers"]
    }


RANDOM = f"x-{'0' * 32}."
BOTH, CLOSED = {80: [HOST], 443: [HOST]}, {80: []}


def test_secret_of_the_operator_is_used_once_it_is_there(world):
    world.config = {"tls_secret": "kubeflow-tls", "https_redirect": True}
    world.related = [route(), auth()]
    status = world.status()
    assert ABSENT in status.message
    assert "HTTPS is not served" in status.message
    (plain,) = world.gateway()["spec"]["servers"]
    assert plain["tls"] == {"httpsRedirect": True}
    found = secret(world.fake, "kubeflow-tls", "istio-ingress")
    assert isinstance(world.status(), testing.ActiveStatus)
    plain, secure = world.gateway()["spec"]["servers"]
    assert plain["tls"] == {"httpsRedirect": True}
    tls = {"mode": "SIMPLE", "credentialName": COPY, "minProtocolVersion": "TLSV1_2"}
    port = {"number": 443, "name": "https", "protocol": "HTTPS"}
    assert secure == {"port": port, "hosts": [HOST], "tls": tls}
    copied = world.fake.find("Secret", COPY, "istio-ingress")
    assert (copied["data"], copied["type"]) == (found["data"], "kubernetes.io/tls")
    assert copied["metadata"]["labels"][OWNER] == f"kf.{OURS}"


def test_last_verified_certificate_is_served_while_the_secret_is_useless(secured):
    before = shown(secured)
    secured.fake.delete("Secret", "kubeflow-tls", "istio-ingress")
    for name, found, lack in (
        ("absent", None, "not found"),
        *tls_pairs.refused(),
        ("no base64", {**tls_pairs.pair(), "tls.crt": "x"}, tls_pairs.UNREADABLE),
        ("no key", {**tls_pairs.pair(), "tls.key": "a2V5="}, tls_pairs.KEY_UNREADABLE),
        ("no ASCII", {**tls_pairs.pair(), "tls.key": "kéy"}, tls_pairs.KEY_UNREADABLE),
        ("mixed", MIXED, tls_pairs.MISMATCH),
    ):
        if found is not None:
            secured.fake.put("Secret", "kubeflow-tls", "istio-ingress", data=found)
        status = secured.hook().unit_status
        assert isinstance(status, testing.BlockedStatus)
        assert f"Secret istio-ingress/kubeflow-tls: {lack}" in status.message, name
        assert "; the last verified certificate is served" in status.message
        assert (shown(secured), hosts(secured)) == (before, BOTH)
    (row,) = (each for each in diagnose_ingress(secured, "status") if lack in each.seen)
    assert row.next == "kubectl -n istio-ingress describe secret kubeflow-tls"
    # The copy that another team deletes or overwrites cannot be restored from such a Secret.
    for change in (None, MIXED):
        secured.fake.find("Secret", COPY, "istio-ingress")["data"] = change
        assert "HTTPS is not served" in secured.status().message
        assert hosts(secured) == CLOSED
        assert isinstance(secured.hook().unit_status, testing.BlockedStatus)
        assert hosts(secured) == CLOSED
        secured.fake.find("Secret", "kubeflow-tls", "istio-ingress")["data"] = tls_pairs.pair()
        assert isinstance(secured.status(), testing.ActiveStatus)
        assert hosts(secured) == BOTH
        secured.fake.find("Secret", "kubeflow-tls", "istio-ingress")["data"] = MIXED


MIXED = tls_pairs.data(tls_pairs.certificate(), tls_pairs.private("another"))


@pytest.mark.parametrize("change", [None, MIXED, {"cert": "eA=="}])
def test_copy_that_another_team_changes_is_restored(secured, change):
    before = shown(secured)
    secured.fake.delete("Secret", COPY, "istio-ingress")
    if change:
        labels = {OWNER: f"kf.{OURS}"}
        owners = secured.fake.find("EnvoyFilter", COPY, "istio-ingress")["metadata"]
        more = {"labels": labels, "ownerReferences": owners["ownerReferences"]}
        secured.fake.put("Secret", COPY, "istio-ingress", data=change, **more)
    assert isinstance(secured.status(), testing.ActiveStatus)
    assert (shown(secured), hosts(secured)) == (before, BOTH)


def test_https_stays_while_the_copy_can_not_be_read(secured):
    secured.fake.broken["get", "secrets", COPY] = 500
    assert secured.status().name == "waiting"
    assert hosts(secured) == BOTH


def test_copy_goes_after_the_gateway_does_not_name_it(secured):
    secured.fake.writes.clear()
    del secured.config["tls_secret"]
    # HTTP stays open in every hook.
    assert isinstance(secured.hook().unit_status, testing.WaitingStatus)
    assert hosts(secured) == {80: [HOST]}
    gateway, copied = (
        next(place for place, line in enumerate(secured.fake.writes) if what in line)
        for what in ("kubeflow-gateway", f"delete secrets {COPY}")
    )
    assert gateway < copied
    assert secrets(secured) == ["istio-ingress"]
    secured.config["https_redirect"] = True
    status = "https-redirect needs a certificate; run: juju config mesh-2 https-redirect=false; "
    assert secured.status().message == f"{status}or set tls-secret, or integrate certificates"
    assert hosts(secured) == {80: [HOST]}
    assert "tls" not in secured.gateway()["spec"]["servers"][0]
    # The former certificate closes nothing while another one is awaited.
    secured.config = {"tls_secret": "gone"}
    secured.run()
    assert hosts(secured) == {80: [HOST]}


def refuse(code, words):
    """Return a change by which the API server refuses the copy."""
    return lambda fake: fake.deny("Secret", code, words, having=COPY)


QUOTA = 'secrets "x" is forbidden: exceeded quota: few-secrets, requested: secrets=1'


@cases(
    ("change", "words"),
    quota=(refuse(403, QUOTA), "ResourceQuota few-secrets"),
    invalid=(refuse(422, "the key is odd"), "the key is odd"),
    of_another_owner=(
        lambda fake: secret(fake, COPY, "istio-ingress"),
        f"another tool has Secret istio-ingress/{COPY}",
    ),
    without_the_right=(
        lambda fake: fake.forbidden.add(("get", "secrets", "istio-ingress")),
        "missing permission: get secrets",
    ),
)
def test_copy_that_is_refused_is_named_and_http_is_served(world, change, words):
    world.config = {"tls_secret": "kubeflow-tls"}
    world.related = [route(), auth()]
    secret(world.fake, "kubeflow-tls", "istio-ingress")
    change(world.fake)
    assert words in world.status().message[:130]
    assert hosts(world) == {80: [HOST]}


def test_copy_that_can_not_be_replaced_is_served_on(secured):
    before = shown(secured)
    refuse(422, "the key is odd")(secured.fake)
    found = secured.fake.find("Secret", "kubeflow-tls", "istio-ingress")
    found["data"] = tls_pairs.pair("p384")
    assert "the key is odd" in secured.status().message
    assert (shown(secured), hosts(secured)) == (before, BOTH)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"days": (-9, -3)}, "gateway (kubeflow-tls): the certificate ended"),
        ({"days": (3, 9)}, "gateway (kubeflow-tls): the certificate is valid only from"),
        ({"names": ["*.kf.example.com"]}, f"(kubeflow-tls): the certificate does not name {HOST}"),
        ({"names": []}, f"(kubeflow-tls): the certificate does not name {HOST}"),
    ],
)
def test_certificate_that_clients_reject_is_served_with_a_message(secured, values, words):
    found = secured.fake.find("Secret", "kubeflow-tls", "istio-ingress")
    found["data"] = tls_pairs.pair(**values)
    assert words in secured.status().message
    assert hosts(secured) == BOTH
    assert secured.fake.find("Secret", COPY, "istio-ingress")["data"] == found["data"]


@cases(
    ("options", "is_said"),
    wildcard=({"hosts": f"{HOST},*.example.com"}, True),
    redirected=({"hosts": "*.example.com", "https_redirect": True}, False),
    exact=({"hosts": HOST}, False),
    own_gateway=({"hosts": "*.example.com", **OWN}, False),
)
def test_hosts_of_other_teams_that_are_open_in_plain_http_are_noted(secured, options, is_said):
    secured.config |= options
    words = (
        "hosts within *.example.com are not authenticated in plain HTTP; set https-redirect=true"
    )
    assert (words in secured.status().message) is is_said


@cases(
    ("port", "options", "words", "is_open"),
    http=(
        {"name": "http2", "port": 80}, {"tls_secret": "kubeflow-tls"},
        f"Service {WHERE} has no port for HTTPS", True,
    ),
    https=(
        {"name": "https", "port": 443}, {},
        f"run: juju integrate mesh-2:certificates NAME; gateway {WHERE} has an https port only",
        False,
    ),
)  # fmt: skip
def test_port_that_the_gateway_lacks_is_named(world, port, options, words, is_open):
    service = world.fake.find("Service", "istio-ingressgateway", "istio-ingress")
    service["spec"]["ports"] = [port]
    secret(world.fake, "kubeflow-tls", "istio-ingress")
    world.config, world.related = options, [route(), auth()]
    status = world.status()
    assert (status.name, words in status.message) == ("blocked", True), status
    assert (world.gateway() is not None) is is_open


def test_certificate_is_asked_for_and_handed_to_the_gateway(world):
    # A common name has 64 characters at most.
    found = [f"{part * count}.example.com" for part, count in {"a": 53, "b": 52, "c": 1}.items()]
    world.config = {"hosts": ",".join(found)}
    world.related = [route(), auth(), authority()]
    status = world.status()
    assert "waiting for a certificate from self-signed-certificates" in status.message
    asked = request(world)
    asking = tls_certificates.CertificateSigningRequest.from_string(asked)
    loaded = x509.load_pem_x509_csr(asked.encode())
    assert isinstance(loaded.public_key(), ec.EllipticCurvePublicKey)
    assert (asking.common_name, asking.sans_dns) == (found[1], {*found})
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
    (issued,) = json.loads(certified.related[-1].remote_app_data["certificates"])
    leaf, *above = issued["chain"]
    another = tls_pairs.certificate("another").strip()
    issued["chain"] = [another, leaf, *above]
    bag = {"certificates": json.dumps([issued])}
    certified.related[-1] = dataclasses.replace(certified.related[-1], remote_app_data=bag)
    assert isinstance(certified.status(), testing.ActiveStatus)
    plain, secure = certified.gateway()["spec"]["servers"]
    assert plain["tls"] == {"httpsRedirect": True}
    assert secure["tls"]["credentialName"] == "istio-integrator.kf.mesh-2"
    certificate = tls_certificates.Certificate.from_string(shown(certified)["tls.crt"])
    key = tls_certificates.PrivateKey.from_string(shown(certified)["tls.key"])
    assert certificate.matches_private_key(key)
    assert certificate.sans_dns == {"kf.example.com"}
    assert shown(certified)["tls.crt"].split("\n\n") == ["\n".join([leaf, another, *above]) + "\n"]
    certified.fake.writes.clear()
    certified.run()
    assert certified.fake.writes == []
    (row,) = (row for row in diagnose_ingress(certified, "certificates") if COPY in row.seen)
    assert row.seen.startswith(f"gateway ({COPY}): the certificate is valid until ")
    # The option wins.
    certified.config["tls_secret"] = "kubeflow-tls"
    found = secret(certified.fake, "kubeflow-tls", "istio-ingress")
    certified.run()
    assert certified.fake.find("Secret", COPY, "istio-ingress")["data"] == found["data"]


def test_certificate_of_the_authority_that_envoy_refuses_is_named(certified):
    (issued,) = json.loads(certified.related[-1].remote_app_data["certificates"])
    public = x509.load_pem_x509_csr(request(certified).encode()).public_key()
    stapled = tls_pairs.certificate(extensions=[tls_pairs.STAPLED], public=public)
    bag = {"certificates": json.dumps([{**issued, "certificate": stapled}])}
    certified.related[-1] = dataclasses.replace(certified.related[-1], remote_app_data=bag)
    lack = "certificate from self-signed-certificates: the certificate requires OCSP stapling"
    words = f"run: juju status --relations; {lack}; HTTPS is not served"
    assert certified.status().message == words
    assert len(certified.routes()) == 1


def test_certificate_is_renewed_while_the_old_one_serves(certified):
    certified.run()
    before = shown(certified)["tls.crt"]
    asked = request(certified)
    (due,) = (each.expire for each in certified.secrets if "-certificate-" in each.label)
    left = due - datetime.datetime.now(datetime.UTC)
    assert left / signing.LIFE == pytest.approx(2 / 3, abs=0.01)
    renew(certified)
    assert request(certified) != asked
    certified.run()
    assert shown(certified)["tls.crt"] == before
    assert len(certified.gateway()["spec"]["servers"]) == 2
    sign(certified)
    certified.run()
    assert shown(certified)["tls.crt"] != before


def test_other_hosts_need_another_certificate_and_an_invalid_option_does_not(certified):
    certified.run()
    asked = request(certified)
    certified.config |= {"hosts": "ai.example.com", "routing": "x"}
    assert isinstance(certified.status(), testing.BlockedStatus)
    assert request(certified) == asked
    del certified.config["routing"]
    certified.run()
    assert request(certified) != asked


def test_certificate_needs_hosts(world):
    world.config = {**OWN, "hosts": ""}
    world.related = [route(), auth(), authority()]
    words = "certificates needs hosts; run: juju config mesh-2 hosts=NAME"
    assert world.status() == testing.BlockedStatus(f"{words}; +1 more")
    assert len(world.gateway()["spec"]["servers"]) == 1


def test_certificate_in_another_namespace_is_shown_as_ours(certified):
    certified.run()
    certified.run(lambda ctx: ctx.on.action("show-manifests"))
    written = yaml.safe_load_all(certified.ctx.action_results["manifests"])
    found = [each["metadata"] for each in written if each["kind"] == "Secret"]
    places = {(each["namespace"], each["name"]) for each in found}
    assert places >= {("istio-ingress", COPY), ("kf", f"{OURS}-record")}


def test_certificate_follows_the_gateway_also_without_a_look_into_every_namespace(certified):
    certified.fake.forbidden.add(("list", "secrets", ""))
    certified.run()
    assert secrets(certified) == ["istio-ingress"]
    certified.config |= OWN
    certified.run()
    assert secrets(certified) == ["kf"]
    del certified.config["gateway_service"]
    certified.run()
    certified.remove()
    assert secrets(certified) == []


def test_authority_that_refuses_a_certificate_is_quoted(certified):
    errors = [{"code": 102, "name": "x", "message": words} for words in ("wait", "not here")]
    asked = [{"csr": request(certified), "error": each} for each in errors]
    bag = {"request_errors": json.dumps(asked)}
    certified.related[-1] = dataclasses.replace(certified.related[-1], remote_app_data=bag)
    assert certified.status() == testing.BlockedStatus("certificates: refused: not here")
    assert len(certified.routes()) == 1


def test_certificate_serves_on_while_the_authority_sends_none_that_can_be_read(certified):
    certified.run()
    before, asked, good = shown(certified), request(certified), certified.related[-1]
    (issued,) = json.loads(good.remote_app_data["certificates"])
    odd = [json.dumps([{**issued, **each}]) for each in ({"chain": ["x"]}, {"ca": "x"})]
    bags = [{"certificates": each} for each in ("no JSON", "[1]", *odd)]
    for bag in (*bags, {"request_errors": json.dumps([{"csr": "x"}])}, {"capabilities": "["}):
        certified.related[-1] = dataclasses.replace(certified.related[-1], remote_app_data=bag)
        status = certified.status()
        assert isinstance(status, testing.BlockedStatus)
        assert f"certificates:{good.id} self-signed-certificates: " in status.message
        assert shown(certified) == before
        assert len(certified.gateway()["spec"]["servers"]) == 2
    other = json.dumps([issued, {**issued, "certificate": tls_pairs.certificate("another")}])
    certified.related[-1] = dataclasses.replace(
        certified.related[-1], remote_app_data={"certificates": other}
    )
    status = certified.status()
    assert "self-signed-certificates: sends the certificate of another key" in status.message
    assert shown(certified) == before
    # The chain is optional.
    bag = {"certificates": json.dumps([{**issued, "chain": None}])}
    certified.related[-1] = dataclasses.replace(good, remote_app_data=bag)
    assert isinstance(certified.status(), testing.ActiveStatus)
    assert request(certified) == asked
    certified.related, certified.config["https_redirect"] = certified.related[:2], False
    assert isinstance(certified.status(), testing.ActiveStatus)
    assert len(certified.gateway()["spec"]["servers"]) == 1
    assert secrets(certified) == []
