"""The webhook's self-signed certificate, renewed long before it expires."""

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

LIFE = datetime.timedelta(days=90)
RENEW_AT = 2 / 3
"""Share of its lifetime after which a certificate is replaced."""
SKEW = datetime.timedelta(days=1)
"""Possible difference of clocks: a certificate's validity begins this long before its creation."""
OVERLAP = datetime.timedelta(days=1)
"""Time for which the previous certificate stays trusted after a change."""

_FIELDS = {"certificate": "tls.crt", "key": "tls.key", "previous": "previous.crt"}
_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyPair:
    """A certificate and its key in PEM."""

    certificate: str
    key: str
    previous: str = ""
    """The previous certificate, while servers may still present it."""

    @property
    def bundle(self) -> str:
        """The certificates that clients have to trust."""
        return self.certificate + self.previous

    @classmethod
    def read(cls, data: Mapping[str, str]) -> Self | None:
        """Read the data of a Secret; None if it is incomplete or invalid."""
        try:
            found = {
                field: base64.b64decode(data.get(key, ""), validate=True).decode()
                for field, key in _FIELDS.items()
            }
        except ValueError:
            return None
        return cls(**found) if found["certificate"] and found["key"] else None

    def to_secret_data(self) -> dict[str, str]:
        """Return the data of a Secret."""
        return {key: encode(getattr(self, field)) for field, key in _FIELDS.items()}


def encode(text: str) -> str:
    """Encode text as in the data of a Kubernetes object."""
    return base64.b64encode(text.encode()).decode()


def renew_if_due(
    found: KeyPair | None,
    names: Sequence[str],
    now: datetime.datetime,
    *,
    rotate: bool = False,
) -> KeyPair:
    """Return the certificate for `names` to use: the found one, unless it is due for replacement.

    With `rotate` it is replaced at any age.
    """
    loaded = _load_certificate(found) if found else None
    if found is None or loaded is None:
        return _create_key_pair(names, now)
    since, until = loaded.not_valid_before_utc, loaded.not_valid_after_utc
    if rotate or now >= since + RENEW_AT * (until - since) or not _has_names(loaded, names):
        return dataclasses.replace(_create_key_pair(names, now), previous=found.certificate)
    if found.previous and now >= since + SKEW + OVERLAP:
        return dataclasses.replace(found, previous="")
    return found


def _load_certificate(found: KeyPair) -> x509.Certificate | None:
    """Read a certificate; None if it or its key can't be read, or they do not match."""
    try:
        loaded = x509.load_pem_x509_certificate(found.certificate.encode())
        key = serialization.load_pem_private_key(found.key.encode(), password=None)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        return None
    return loaded if key.public_key() == loaded.public_key() else None


def _has_names(loaded: x509.Certificate, names: Sequence[str]) -> bool:
    try:
        found = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    return sorted(found.get_values_for_type(x509.DNSName)) == sorted(names)


def _create_key_pair(names: Sequence[str], now: datetime.datetime) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "istio-integrator admission")])
    usage = x509.KeyUsage(**{use: use == "digital_signature" for use in _USES})
    server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(server, critical=False)
        .add_extension(alternatives, critical=False)
        .add_extension(issuer, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = key.private_bytes(pem, pkcs8, serialization.NoEncryption())
    return KeyPair(certificate=signed.public_bytes(pem).decode(), key=private.decode())
