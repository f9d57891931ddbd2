"""How long a certificate is valid is read as the library for certificates reads it."""

import base64
import datetime
import functools

import hypothesis
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import strategies as st

from istio_integrator import lives

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MOMENTS = st.integers(-19 * 365 * 86400, 8000 * 365 * 86400).map(
    lambda seconds: EPOCH + datetime.timedelta(seconds=seconds)
)


@functools.cache
def key():
    return ec.generate_private_key(ec.SECP256R1())


def certificate(since, until, names=("a",), serial=1):
    organizations = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, name) for name in names]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name(organizations))
        .public_key(key().public_key())
        .serial_number(serial)
        .not_valid_before(since)
        .not_valid_after(until)
        .sign(key(), hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )


@hypothesis.given(
    MOMENTS,
    MOMENTS,
    st.lists(st.text("ab", min_size=1, max_size=60), max_size=9),
    st.integers(1, 2**158),
)
def test_life_is_that_which_the_library_reads(one, other, names, serial):
    pem = certificate(min(one, other), max(one, other), names, serial)
    known = x509.load_pem_x509_certificate(pem.encode())
    assert lives.life(pem) == (known.not_valid_before_utc, known.not_valid_after_utc)


def test_first_of_a_chain_counts():
    year = [datetime.datetime(2026 + each, 1, 1, tzinfo=datetime.UTC) for each in range(4)]
    chain = certificate(year[0], year[1]) + certificate(year[2], year[3])
    assert lives.life(f"a comment\n{chain}") == (year[0], year[1])


@hypothesis.given(st.binary(max_size=300))
def test_what_is_no_certificate_has_no_life(data):
    text = base64.b64encode(data).decode()
    assert lives.life(f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----") is None


@hypothesis.given(st.integers(0, 400), st.binary(min_size=1, max_size=4))
def test_certificate_with_other_bytes_in_it_raises_nothing(place, others):
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    whole = base64.b64decode("".join(certificate(now, now).splitlines()[1:-1]))
    changed = whole[:place] + others + whole[place + len(others) :]
    text = base64.b64encode(changed).decode()
    lives.life(f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----")


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN CERTIFICATE-----\n"])
def test_what_is_no_pem_has_no_life(text):
    assert lives.life(text) is None
