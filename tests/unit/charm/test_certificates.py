"""When which certificate of the webhook is replaced."""

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

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
NAMES = ["a-admission.m.svc", "a-admission.m.svc.cluster.local"]
DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="module")
def material():
    return certificates.decide(None, NAMES, NOW)


def is_trusted(bundle, leaf, when, name=NAMES[0]):
    store = verification.Store(x509.load_pem_x509_certificates(bundle.encode()))
    builder = verification.PolicyBuilder().store(store).time(when.replace(tzinfo=None))
    verifier = builder.build_server_verifier(x509.DNSName(name))
    try:
        verifier.verify(x509.load_pem_x509_certificate(leaf.encode()), [])
    except verification.VerificationError:
        return False
    return True


def fits(leaf, key):
    found = serialization.load_pem_private_key(key.encode(), password=None)
    return x509.load_pem_x509_certificate(leaf.encode()).public_key() == found.public_key()


def test_new_certificates_are_trusted_for_each_name_and_no_other(material):
    assert all(is_trusted(material.bundle, material.leaf, NOW, name) for name in NAMES)
    assert not is_trusted(material.bundle, material.leaf, NOW, "b.m.svc")


USAGES = {
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign"),
}


@pytest.mark.parametrize(
    ("field", "uses", "lengths"),
    [
        pytest.param("ca", {"key_cert_sign", "crl_sign"}, (True, 0), id="authority"),
        pytest.param("leaf", {"digital_signature"}, (False, None), id="leaf"),
    ],
)
def test_certificates_are_for_what_they_are_used_for_alone(material, field, uses, lengths):
    loaded = x509.load_pem_x509_certificate(getattr(material, field).encode())
    constraints = loaded.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = loaded.extensions.get_extension_for_class(x509.KeyUsage)

    assert {name for name in USAGES if getattr(usage.value, name)} == uses
    assert (constraints.value.ca, constraints.value.path_length) == lengths
    # Clients must heed these two, and may not know the others (RFC 5280, 4.2).
    assert {each.oid for each in loaded.extensions if each.critical} == {
        constraints.oid,
        usage.oid,
    }


@pytest.mark.parametrize("hours", [-23, 23])
def test_clocks_that_differ_by_less_than_a_day_do_not_matter(material, hours):
    when = NOW + datetime.timedelta(hours=hours)

    assert is_trusted(material.bundle, material.leaf, when)


def test_nothing_changes_while_nothing_is_due(material):
    assert certificates.decide(material, NAMES, NOW + 50 * DAY) is material


def test_the_leaf_is_renewed_at_two_thirds_of_its_life_by_the_same_authority(material):
    when = NOW + 61 * DAY
    renewed = certificates.decide(material, NAMES, when)

    assert renewed.leaf != material.leaf
    assert renewed.bundle == material.bundle
    assert is_trusted(material.bundle, renewed.leaf, when)


def test_other_names_need_another_leaf(material):
    other = certificates.decide(material, ["new.m.svc"], NOW)

    assert is_trusted(material.bundle, other.leaf, NOW, "new.m.svc")


def test_an_old_authority_is_replaced_and_both_are_trusted_for_a_day(material):
    when = NOW + 2500 * DAY
    changed = certificates.decide(material, NAMES, when)

    assert changed.ca != material.ca
    assert changed.previous_ca == material.ca
    assert is_trusted(changed.bundle, changed.leaf, when)
    early = certificates.decide(changed, NAMES, when + 0.9 * DAY)
    late = certificates.decide(changed, NAMES, when + 1.1 * DAY)
    assert early is changed
    assert late == dataclasses.replace(changed, previous_ca="")


def test_a_rotation_replaces_everything_and_trusts_the_old_leaf_meanwhile(material):
    rotated = certificates.decide(material, NAMES, NOW + DAY, rotate=True)

    assert {rotated.ca, rotated.leaf}.isdisjoint({material.ca, material.leaf})
    assert is_trusted(rotated.bundle, material.leaf, NOW + DAY)
    assert is_trusted(rotated.bundle, rotated.leaf, NOW + DAY)
    assert not is_trusted(material.bundle, rotated.leaf, NOW + DAY)


@pytest.mark.parametrize("field", ["ca", "ca_key", "leaf", "leaf_key"])
@pytest.mark.parametrize("broken", ["", "garbage", "of another"])
def test_what_is_broken_is_made_anew(material, field, broken):
    other = certificates.decide(None, NAMES, NOW)
    text = getattr(other, field) if broken == "of another" else broken
    healed = certificates.decide(dataclasses.replace(material, **{field: text}), NAMES, NOW)

    assert is_trusted(healed.bundle, healed.leaf, NOW)
    assert fits(healed.leaf, healed.leaf_key)
    assert (healed.ca == material.ca) is field.startswith("leaf")
    assert certificates.decide(healed, NAMES, NOW) is healed


def test_a_secret_is_read_as_it_was_written(material):
    assert certificates.Material.read(material.data()) == material


@pytest.mark.parametrize("data", [{}, {"ca.crt": "%%%"}, {"tls.crt": "YQ=="}])
def test_a_secret_without_certificates_is_none(data):
    assert certificates.Material.read(data) is None


def test_a_secret_of_which_one_entry_is_garbled_is_none(material):
    data = material.data()
    assert certificates.Material.read({**data, "ca.crt": f"%{data['ca.crt']}"}) is None


@hypothesis_settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 4000), st.booleans()), max_size=5))
def test_at_any_time_the_leaf_in_use_is_trusted_before_and_after_each_change(steps):
    now, found = NOW, certificates.decide(None, NAMES, NOW)
    for days, rotate in steps:
        now += days * DAY
        before, found = found, certificates.decide(found, NAMES, now, rotate=rotate)
        assert is_trusted(found.bundle, found.leaf, now)
        # A server that has not noticed yet is still trusted, unless its leaf ended long ago.
        if is_trusted(before.bundle, before.leaf, now):
            assert is_trusted(found.bundle, before.leaf, now)
