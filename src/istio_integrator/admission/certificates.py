"""The webhook's certificates: an authority and a leaf, renewed long before they end."""

from __future__ import annotations

import base64
import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Self

from cryptography import exceptions, x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE = datetime.timedelta(days=3650)
LEAF_LIFE = datetime.timedelta(days=90)
RENEW_AT = 2 / 3
"""Of its life: then a certificate is replaced."""
SKEW = datetime.timedelta(days=1)
"""By which clocks may differ: certificates are valid from that long ago."""
OVERLAP = datetime.timedelta(days=1)
"""For which the authority before is still trusted after a change."""

_Key = ec.EllipticCurvePrivateKey
_FIELDS = {
    "ca": "ca.crt",
    "ca_key": "ca.key",
    "leaf": "tls.crt",
    "leaf_key": "tls.key",
    "previous_ca": "previous-ca.crt",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Material:
    """Certificates and keys in PEM."""

    ca: str
    ca_key: str
    leaf: str
    leaf_key: str
    previous_ca: str = ""
    """Of the authority before, while servers may still show a leaf of it."""

    @property
    def bundle(self) -> str:
        """What clients have to trust."""
        return self.ca + self.previous_ca

    @classmethod
    def read(cls, data: Mapping[str, str]) -> Self | None:
        """Read the data of a Secret; None where something is missing."""
        try:
            found = {
                field: base64.b64decode(data.get(key, ""), validate=True).decode()
                for field, key in _FIELDS.items()
            }
        except ValueError:
            return None
        if not all(found[field] for field in ("ca", "ca_key", "leaf", "leaf_key")):
            return None
        return cls(**found)

    def data(self) -> dict[str, str]:
        """Write the data of a Secret."""
        return {key: encoded(getattr(self, field)) for field, key in _FIELDS.items()}


def encoded(text: str) -> str:
    """Write text as Kubernetes has it in data."""
    return base64.b64encode(text.encode()).decode()


def decide(
    found: Material | None,
    names: Sequence[str],
    now: datetime.datetime,
    *,
    rotate: bool = False,
) -> Material:
    """Decide which certificates for `names` are in use from now on: as found, if nothing is due.

    With `rotate` all of them are replaced whatever their age.
    """
    authority = _pair(found.ca, found.ca_key) if found else None
    if found is None or authority is None:
        return _new(names, now)
    ca, ca_key = authority
    if rotate or _is_due(ca, now):
        return dataclasses.replace(_new(names, now), previous_ca=found.ca)
    leaf = _pair(found.leaf, found.leaf_key)
    if leaf is None or _is_due(leaf[0], now) or not _is_for(leaf[0], names, ca):
        leaf_pem, leaf_key = _leaf(ca, ca_key, names, now)
        return dataclasses.replace(found, leaf=leaf_pem, leaf_key=leaf_key)
    if found.previous_ca and now >= ca.not_valid_before_utc + SKEW + OVERLAP:
        return dataclasses.replace(found, previous_ca="")
    return found


def _pair(certificate: str, private_key: str) -> tuple[x509.Certificate, _Key] | None:
    """Read a certificate and its key; None where they can't be read or do not belong together."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate.encode())
        key = serialization.load_pem_private_key(private_key.encode(), password=None)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        return None
    if isinstance(key, _Key) and key.public_key() == loaded.public_key():
        return loaded, key
    return None


def _is_due(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now >= certificate.not_valid_before_utc + RENEW_AT * life


def _is_for(leaf: x509.Certificate, names: Sequence[str], ca: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(ca)
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, exceptions.InvalidSignature, x509.ExtensionNotFound):
        return False
    return sorted(found.get_values_for_type(x509.DNSName)) == sorted(names)


def _new(names: Sequence[str], now: datetime.datetime) -> Material:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    # The serial number in the name tells one authority from the next.
    subject = _name(f"istio-integrator admission {x509.random_serial_number():x}"[:64])
    key_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    builder = _builder(subject, ca_key, now, now + CA_LIFE, signs=True)
    builder = builder.issuer_name(subject).add_extension(key_id, critical=False)
    ca = builder.sign(ca_key, hashes.SHA256())
    leaf, leaf_key = _leaf(ca, ca_key, names, now)
    return Material(ca=_pem(ca), ca_key=_key_pem(ca_key), leaf=leaf, leaf_key=leaf_key)


def _leaf(
    ca: x509.Certificate, ca_key: _Key, names: Sequence[str], now: datetime.datetime
) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + LEAF_LIFE, ca.not_valid_after_utc)
    issuer_id = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = _builder(_name("istio-integrator admission"), key, now, until, signs=False)
    builder = builder.issuer_name(ca.subject)
    for extension in (
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectAlternativeName([x509.DNSName(name) for name in names]),
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id),
    ):
        builder = builder.add_extension(extension, critical=False)
    return _pem(builder.sign(ca_key, hashes.SHA256())), _key_pem(key)


def _builder(
    subject: x509.Name,
    key: _Key,
    now: datetime.datetime,
    until: datetime.datetime,
    *,
    signs: bool,
) -> x509.CertificateBuilder:
    constraints = x509.BasicConstraints(ca=signs, path_length=0 if signs else None)
    usage = x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(until)
        .add_extension(constraints, critical=True)
        .add_extension(usage, critical=True)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: _Key) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
