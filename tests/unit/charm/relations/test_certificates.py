"""Requests and certificates as they are read, whatever was written."""

import datetime
import json

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from istio_integrator.relations import certificates

NAMES = ("kf.example.com", "ai.example.com")
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
KEY = certificates.new_key()
REQUEST = certificates.new_request(KEY, NAMES)
FOREIGN = rsa.generate_private_key(public_exponent=65537, key_size=2048)
"""A key of another kind than ours."""


def issued(key=KEY, days=90):
    """A certificate that was made now."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    loaded = serialization.load_pem_private_key(key.encode(), password=None)
    builder = x509.CertificateBuilder(name, name, loaded.public_key(), 1, NOW, NOW + days * DAY)
    signed = builder.sign(loaded, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


CERTIFICATE = issued()


@pytest.mark.parametrize("names", [NAMES, NAMES[::-1]])
def test_request_is_known_by_its_key_and_names_in_any_order(names):
    assert certificates.is_request_for(REQUEST, KEY, names)


def request_without_names():
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    loaded = serialization.load_pem_private_key(KEY.encode(), password=None)
    signed = builder.sign(loaded, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("request_", "key", "names"),
    [
        pytest.param("", KEY, NAMES, id="none"),
        pytest.param("-----BEGIN x", KEY, NAMES, id="no-request"),
        pytest.param(CERTIFICATE, KEY, NAMES, id="a-certificate"),
        pytest.param(request_without_names(), KEY, (), id="without-names"),
        pytest.param(REQUEST, certificates.new_key(), NAMES, id="another-key"),
        pytest.param(REQUEST, pem(FOREIGN), NAMES, id="key-of-another-kind"),
        pytest.param(REQUEST, "no key", NAMES, id="no-key"),
        pytest.param(REQUEST, KEY, NAMES[:1], id="fewer-names"),
    ],
)
def test_what_asks_for_something_else_is_not_the_request(request_, key, names):
    assert not certificates.is_request_for(request_, key, names)


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (("a" * 64, "b"), "a" * 64),
        (("a" * 65, "b"), "b"),
        (("a" * 65,), "gateway"),
    ],
)
def test_common_name_is_the_first_that_is_short_enough(names, common):
    subject = x509.load_pem_x509_csr(certificates.new_request(KEY, names).encode()).subject
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == common


@pytest.mark.parametrize(
    ("days", "due"), [(-1, False), (0, False), (59, False), (60, True), (61, True), (91, True)]
)
def test_another_one_is_due_at_two_thirds_of_the_life(days, due):
    assert certificates.is_due(CERTIFICATE, NOW + days * DAY) is due


def test_life_of_a_certificate_is_read_and_of_anything_else_unknown():
    assert certificates.life(CERTIFICATE) == (NOW, NOW + 90 * DAY)
    for text in ("", "no certificate", REQUEST):
        assert certificates.life(text) is None
        assert certificates.is_due(text, NOW)


@pytest.mark.parametrize(
    ("certificate", "key", "fits"),
    [
        pytest.param(CERTIFICATE, KEY, True, id="ours"),
        pytest.param(issued(certificates.new_key()), KEY, False, id="of-another-key"),
        pytest.param(issued(pem(FOREIGN)), KEY, False, id="of-another-kind"),
        pytest.param("no certificate", KEY, False, id="no-certificate"),
        pytest.param(CERTIFICATE, "no key", False, id="no-key"),
    ],
)
def test_certificate_fits_its_key_alone(certificate, key, fits):
    assert certificates.fits(certificate, key) is fits


@pytest.mark.parametrize("bag", [{}, {certificates.REQUESTS: "{"}, {certificates.REQUESTS: "[1]"}])
def test_request_that_can_not_be_read_is_none(bag):
    assert certificates.own_request(bag) == ""


def test_request_is_read_as_it_was_written():
    bag = certificates.written(REQUEST)
    assert certificates.own_request(bag) == REQUEST
    # It is for a server, and not for who signs others.
    assert [entry["ca"] for entry in json.loads(bag[certificates.REQUESTS])] == [False]


def sent(**entry):
    given = {"certificate_signing_request": f"{REQUEST}\n", "certificate": CERTIFICATE, **entry}
    return json.dumps([{"certificate_signing_request": "another", "certificate": "x"}, given])


def refused(**error):
    return json.dumps([{"csr": "another", "error": {}}, {"csr": REQUEST, "error": error}])


@pytest.mark.parametrize(
    ("bag", "answer"),
    [
        pytest.param({}, "", id="nothing-yet"),
        pytest.param(
            {certificates.CERTIFICATES: sent(certificate_signing_request="older")}, "", id="older"
        ),
        pytest.param({certificates.CERTIFICATES: sent(revoked=True)}, "", id="revoked"),
        pytest.param(
            {
                certificates.CERTIFICATES: sent(revoked=True),
                certificates.ERRORS: refused(name="n", message="not this name"),
            },
            "not this name",
            id="refused",
        ),
        pytest.param({certificates.ERRORS: refused(name="IP_NOT_ALLOWED")}, "IP_NOT_ALLOWED"),
        pytest.param({certificates.ERRORS: refused()}, "refused", id="without-a-reason"),
        pytest.param({certificates.ERRORS: refused(name=1)}, "refused", id="not-read"),
    ],
)
def test_without_a_certificate_it_is_said_why_if_that_is_known(bag, answer):
    assert certificates.answer(bag, REQUEST) == answer


@pytest.mark.parametrize("certificate", [1, None, "x" * (1 << 15)])
def test_what_is_no_certificate_is_said(certificate):
    bag = {certificates.CERTIFICATES: sent(certificate=certificate)}
    assert certificates.answer(bag, REQUEST).startswith("what was sent is no certificate: ")
    assert certificates.answer({certificates.CERTIFICATES: "{"}, REQUEST).startswith("what was ")


@pytest.mark.parametrize("revoked", [False, None])
@pytest.mark.parametrize(
    ("chain", "bundle"),
    [
        (["above"], f"{CERTIFICATE}above\n"),
        ([CERTIFICATE, "above"], f"{CERTIFICATE}above\n"),
        (None, CERTIFICATE),
    ],
)
def test_certificate_comes_with_those_above_it_each_once(chain, bundle, revoked):
    bag = {certificates.CERTIFICATES: sent(chain=chain, revoked=revoked)}
    answer = certificates.answer(bag, REQUEST)
    assert isinstance(answer, certificates.Signed)
    assert answer.bundle == bundle
