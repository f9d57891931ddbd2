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
    """Decide which certificates are in use from now on.

    Args:
        found: Those in use; None for none.
        names: What the leaf must be valid for.
        now: The time, with its zone.
        rotate: Replace all of them whatever their age.

    Returns:
        What was found where nothing has to change.
    """
    try:
        current = _Parsed.of(found) if found else None
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        current = None
    if found is None or current is None or not current.is_authority:
        return _new(names, now)
    if rotate or _is_due(current.ca, now):
        return dataclasses.replace(_new(names, now), previous_ca=found.ca)
    if not current.serves(names) or _is_due(current.leaf, now):
        leaf, leaf_key = _leaf(current.ca, current.ca_key, names, now)
        return dataclasses.replace(found, leaf=leaf, leaf_key=leaf_key)
    if found.previous_ca and now >= current.ca.not_valid_before_utc + SKEW + OVERLAP:
        return dataclasses.replace(found, previous_ca="")
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Parsed:
    ca: x509.Certificate
    ca_key: ec.EllipticCurvePrivateKey
    leaf: x509.Certificate
    leaf_key: ec.EllipticCurvePrivateKey

    @classmethod
    def of(cls, material: Material) -> Self:
        return cls(
            ca=x509.load_pem_x509_certificate(material.ca.encode()),
            ca_key=_load_key(material.ca_key),
            leaf=x509.load_pem_x509_certificate(material.leaf.encode()),
            leaf_key=_load_key(material.leaf_key),
        )

    @property
    def is_authority(self) -> bool:
        return self.ca_key.public_key() == self.ca.public_key()

    def serves(self, names: Sequence[str]) -> bool:
        return (
            _is_issued_by(self.leaf, self.ca)
            and self.leaf_key.public_key() == self.leaf.public_key()
            and _names(self.leaf) == sorted(names)
        )


def _is_due(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now >= certificate.not_valid_before_utc + RENEW_AT * life


def _is_issued_by(leaf: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(ca)
    except (ValueError, TypeError, exceptions.InvalidSignature):
        return False
    return True


def _names(leaf: x509.Certificate) -> list[str]:
    try:
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return sorted(extension.value.get_values_for_type(x509.DNSName))


def _new(names: Sequence[str], now: datetime.datetime) -> Material:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    # The serial number in the name tells one authority from the next.
    subject = _subject(f"istio-integrator admission {x509.random_serial_number():x}"[:64])
    key_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(ca_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(key_id, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    leaf, leaf_key = _leaf(ca, ca_key, names, now)
    return Material(ca=_pem(ca), ca_key=_key_pem(ca_key), leaf=leaf, leaf_key=leaf_key)


def _leaf(
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    names: Sequence[str],
    now: datetime.datetime,
) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_id = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    leaf = (
        x509.CertificateBuilder()
        .subject_name(_subject("istio-integrator admission"))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(min(now + LEAF_LIFE, ca.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(alternatives, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    return _pem(leaf), _key_pem(key)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
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


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _load_key(text: str) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(text.encode(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"an elliptic curve key is expected, not {type(key).__name__}")
    return key
