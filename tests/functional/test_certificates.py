"""Certificates of a gateway that others use: real Envoys load them, and start again with them."""

import contextlib
import dataclasses
import json
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from ops import testing

from tests import echo, tls_pairs, waiting
from tests.functional import ingress_world, istiod_world
from tests.functional.ingress_world import MODEL, WEB, gateway, server, virtual_service
from tests.gateway_client import HOST, TENANT
from tests.kubernetes_objects import made
from tests.unit.charm import charm_world
from tests.unit.charm import ingress_world as unit_world

GIVEN = "kf-tls"
COPY = f"istio-integrator.{MODEL}.istio-integrator"
SPACE = istiod_world.GATEWAY_NAMESPACE


def loads(folder, data):
    """Tell whether Envoy starts with a certificate, which istiod would take from a Secret."""
    files = data.get("cert") or data["tls.crt"], data.get("key") or data["tls.key"]
    chain, key = ({"inline_bytes": each} for each in files)
    kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
    echoes = "type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"
    pairs = [{"certificate_chain": chain, "private_key": key}]
    tls = {"@type": kind, "common_tls_context": {"tls_certificates": pairs}}
    filters = [{"name": "echo", "typed_config": {"@type": echoes}}]
    shown = {"filters": filters, "transport_socket": {"name": "tls", "typed_config": tls}}
    listener = {"name": "x", "address": istiod_world.on_loopback(0), "filter_chains": [shown]}
    file = folder / "envoy.json"
    file.write_text(json.dumps({"static_resources": {"listeners": [listener]}}))
    argv = [istiod_world.ENVOY, "--mode", "validate", "-l", "off", "-c", file]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


STRICTER = {"ed25519"}
"""What Envoy's FIPS builds and browsers refuse."""
MENDED = {"unfinished second", "mark at the start", "indented"}
"""What Envoy refuses as it is, and accepts as the charm writes it."""


@pytest.fixture
def named(monkeypatch):
    """A model on a named gateway in a small cluster, with a Secret of the operator."""
    fake = charm_world.model()
    unit_world.connect(fake, monkeypatch)
    found = unit_world.World(fake, unit_world.route(), unit_world.auth(), tls_secret=GIVEN)
    unit_world.secret(fake, GIVEN, SPACE)
    return found


def test_gateway_gets_no_certificate_that_envoy_refuses(named, tmp_path):
    copied = f"istio-integrator.kf.{unit_world.OURS}"
    given = named.fake.find("Secret", GIVEN, SPACE)
    for name, data in tls_pairs.served():
        given["data"] = data
        assert "tls" not in named.hook().unit_status.message.replace("(kf-tls): the", ""), name
        assert loads(tmp_path, named.fake.find("Secret", copied, SPACE)["data"]), name
        assert loads(tmp_path, data) is (name not in MENDED), name
    last = named.fake.find("Secret", copied, SPACE)["data"]
    for name, data, lack in tls_pairs.refused():
        given["data"] = data
        message = named.hook().unit_status.message
        assert f"Secret {SPACE}/{GIVEN}: {lack}" in message, name
        assert named.fake.find("Secret", copied, SPACE)["data"] == last, name
        if lack != tls_pairs.NO_PAIR:
            assert loads(tmp_path, data) is (name in STRICTER), name


GOOD = tls_pairs.pair()
USELESS = {
    "wrong keys": tls_pairs.data("theirs", "theirs", ("crt", "pem")),
    "no PEM": tls_pairs.data("theirs", "theirs"),
    "another key": tls_pairs.data(tls_pairs.certificate(), tls_pairs.private("another")),
    "encrypted key": tls_pairs.data(
        tls_pairs.certificate(), tls_pairs.private("p256", encryption=tls_pairs.LOCKED)
    ),
    "empty": tls_pairs.data("", ""),
    "deleted": None,
}


class Given:
    """The operator's Secret, in the gateway's namespace."""

    name = "tls-secret"
    author = f"Secret {SPACE}/{GIVEN}"

    def __init__(self, place):
        self._place = place
        place.options = {"hosts": HOST, "tls_secret": GIVEN}

    def set(self, name):
        """Give a good certificate, or a useless one by its name."""
        data = USELESS[name] if name else GOOD
        with contextlib.suppress(LookupError):
            self._place.api.delete(made("v1", "Secret", GIVEN, SPACE))
        if data is not None:
            self._place.api.create(made("v1", "Secret", GIVEN, SPACE, data=data))


class Issued:
    """The answer of an authority on the relation `certificates`."""

    name = "certificates"
    author = "self-signed-certificates"

    def __init__(self, place):
        self._place = place
        place.options = {"hosts": HOST}
        relation = testing.Relation("certificates", id=90, remote_app_name=self.author)
        place.kept = [relation]
        place.hook()

    def set(self, name):
        """Answer the request with a good certificate, or with a useless one by its name."""
        (relation,) = self._place.kept
        (asked,) = json.loads(relation.local_app_data["certificate_signing_requests"])
        request = asked["certificate_signing_request"]
        text = {
            "no PEM": "theirs",
            "another key": tls_pairs.certificate("another"),
            # In place of an encrypted key, which an authority cannot send.
            "encrypted key": signed(request, tls_pairs.STAPLED),
        }.get(name) or signed(request)
        entry = {"certificate": text, "ca": text, "certificate_signing_request": request}
        if name == "wrong keys":
            entry["crt"] = entry.pop("certificate")
        bag = {"certificates": json.dumps([] if name == "empty" else [entry])}
        bag = {} if name == "deleted" else bag
        self._place.kept = [dataclasses.replace(relation, remote_app_data=bag)]
        # The library stores an answer and is ready in the next hook.
        self._place.hook()


def signed(request, *extensions):
    """Sign a request."""
    asked = x509.load_pem_x509_csr(request.encode())
    builder = (
        x509.CertificateBuilder(asked.subject, asked.subject, asked.public_key(), 7)
        .not_valid_before(tls_pairs.now(-1))
        .not_valid_after(tls_pairs.now(90))
        .add_extension(asked.extensions[0].value, critical=False)
    )
    for each in extensions:
        builder = builder.add_extension(each, critical=False)
    return builder.sign(tls_pairs.key(), hashes.SHA256()).public_bytes(tls_pairs.PEM).decode()


@pytest.fixture(scope="module")
def shared(place):
    """A gateway on which a neighbour is served by HTTPS as well."""
    secure = gateway("shop", "secure", server(443, [TENANT], **ingress_world.HTTPS))
    routes = virtual_service(
        "shop", "secure", ["shop/secure"], [TENANT], {"route": ingress_world.lead(WEB)}
    )
    with place.there(secure, routes):
        place.eventually(200, host=TENANT, tls=TENANT)
        yield place


SERVED, CLOSED = (200, 200), (404, 0)
"""Our HTTP and HTTPS."""
QUICK = ("another key", "deleted")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name not in QUICK)) for name in USELESS],
)
@pytest.mark.parametrize("source", [Given, Issued])
def test_useless_certificate_is_named_and_nobody_else_pays(shared, source, name):
    """Each step is followed by a new start of the gateway."""
    place = shared
    place.remove()
    given = source(place)

    def answers():
        return tuple(place.status(tls=tls, Cookie=echo.COOKIE) for tls in ("", HOST))

    def step(what, ours, *, is_fine=False):
        said = place.reconcile()
        told = [each for each in said if given.author in each]
        assert [each.startswith("active") for each in told] == [False] * (not is_fine), (
            what,
            said,
        )
        severe = {each for each in said if each.startswith("blocked")}
        assert severe <= {*told}, (what, said)
        for _ in range(2):
            for tls in ("", TENANT):
                place.eventually(200, "/", host=TENANT, tls=tls)
            assert waiting.eventually(lambda: answers() == ours, 20), (what, answers())
            place.restart()
        print(source.name, name, what, ours, told)

    def overwrite():
        live = place.api.get("Secret", COPY, SPACE)
        place.api.delete(live)
        if (data := USELESS[name]) is None:
            return
        if name == "wrong keys":
            data = {**live["data"], "cert": "eA==", "key": "eA=="}
        kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
        meta = {key: live["metadata"][key] for key in kept}
        place.api.create({**live, "metadata": meta, "data": data})

    given.set(name)
    step("never verified", (200, 0))
    given.set("")
    step("repaired", SERVED, is_fine=True)
    overwrite()
    step("copy overwritten", SERVED, is_fine=True)
    given.set(name)
    step("useless while served", SERVED)
    given.set("deleted")
    step("deleted", SERVED)
    overwrite()
    step("copy overwritten as well", CLOSED)
    given.set("")
    step("repaired again", SERVED, is_fine=True)
