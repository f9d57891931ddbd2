"""When the certificate of the webhook is replaced."""

import dataclasses
import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import verification
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from istio_integrator.admission import certificates
from tests.unit.cases import cases

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
NAMES = ["a-admission.m.svc", "a-admission.m.svc.cluster.local"]
DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="module")
def material():
    return certificates.renew_if_due(None, NAMES, NOW)


def is_trusted(bundle, shown, when, name=NAMES[0]):
    store = verification.Store(x509.load_pem_x509_certificates(bundle.encode()))
    builder = verification.PolicyBuilder().store(store).time(when.replace(tzinfo=None))
    verifier = builder.build_server_verifier(x509.DNSName(name))
    try:
        verifier.verify(x509.load_pem_x509_certificate(shown.encode()), [])
    except verification.VerificationError:
        return False
    return True


def test_certificate_is_trusted_for_each_name_and_no_other_and_signs_no_other(material):
    shown = material.certificate
    assert all(is_trusted(material.bundle, shown, NOW, name) for name in NAMES)
    assert not is_trusted(material.bundle, shown, NOW, "b.m.svc")
    loaded = x509.load_pem_x509_certificate(shown.encode())
    constraints = loaded.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = loaded.extensions.get_extension_for_class(x509.KeyUsage)
    assert not constraints.value.ca
    assert usage.value.digital_signature
    assert repr(usage.value).count("True") == 1
    # Clients must heed these two, and may not know the others (RFC 5280, 4.2).
    assert {each.oid for each in loaded.extensions if each.critical} == {
        constraints.oid,
        usage.oid,
    }


@pytest.mark.parametrize("hours", [-23, 23])
def test_clocks_that_differ_by_less_than_a_day_do_not_matter(material, hours):
    when = NOW + datetime.timedelta(hours=hours)
    assert is_trusted(material.bundle, material.certificate, when)


@cases(
    ("days", "names", "rotate", "is_kept"),
    nothing_is_due=(59.6, NAMES[::-1], False, True),
    two_thirds_of_its_life_are_over=(59.7, NAMES, False, False),
    other_names=(1, ["new.m.svc"], False, False),
    fewer_names=(1, NAMES[:1], False, False),
    asked_for=(1, NAMES, True, False),
)
def test_certificate_is_replaced_when_due_and_both_are_trusted_for_a_day(
    material, days, names, rotate, is_kept
):
    when = NOW + days * DAY
    changed = certificates.renew_if_due(material, names, when, rotate=rotate)
    assert (changed is material) is is_kept
    if is_kept:
        return
    assert changed.certificate != material.certificate
    assert is_trusted(changed.bundle, material.certificate, when)
    assert is_trusted(changed.bundle, changed.certificate, when, names[0])
    assert not is_trusted(material.bundle, changed.certificate, when, names[0])
    assert certificates.renew_if_due(changed, names, when + 0.9 * DAY) is changed
    again = certificates.renew_if_due(changed, names, when + 0.9 * DAY, rotate=True)
    assert again.previous == changed.certificate
    late = certificates.renew_if_due(changed, names, when + 1.1 * DAY)
    assert late == dataclasses.replace(changed, previous="")


@pytest.mark.parametrize("field", ["certificate", "key"])
@pytest.mark.parametrize("broken", ["", "garbage", "of another"])
def test_what_is_broken_is_made_anew(material, field, broken):
    other = certificates.renew_if_due(None, NAMES, NOW)
    text = getattr(other, field) if broken == "of another" else broken
    healed = certificates.renew_if_due(dataclasses.replace(material, **{field: text}), NAMES, NOW)
    assert is_trusted(healed.bundle, healed.certificate, NOW)
    key = serialization.load_pem_private_key(healed.key.encode(), password=None)
    loaded = x509.load_pem_x509_certificate(healed.certificate.encode())
    assert loaded.public_key() == key.public_key()
    assert certificates.renew_if_due(healed, NAMES, NOW) is healed


def test_a_secret_is_read_as_it_was_written_and_is_none_where_something_is_missing(material):
    kept = dataclasses.replace(material, previous="the one before")
    data = kept.to_secret_data()
    assert certificates.KeyPair.read(data) == kept
    odd = {**data, "tls.crt": f"%{data['tls.crt']}"}
    for broken in ({}, {"tls.crt": "YQ=="}, {"tls.key": "YQ=="}, odd):
        assert certificates.KeyPair.read(broken) is None


@hypothesis_settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 200), st.booleans()), max_size=5))
def test_at_any_time_the_certificate_in_use_is_trusted_before_and_after_each_change(steps):
    now, found = NOW, certificates.renew_if_due(None, NAMES, NOW)
    for days, rotate in steps:
        now += days * DAY
        before, found = found, certificates.renew_if_due(found, NAMES, now, rotate=rotate)
        assert is_trusted(found.bundle, found.certificate, now)
        # A server that has not noticed yet is still trusted, unless its certificate has ended.
        if is_trusted(before.bundle, before.certificate, now):
            assert is_trusted(found.bundle, before.certificate, now)
