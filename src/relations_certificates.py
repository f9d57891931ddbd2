"""The wire format of `tls-certificates`, and the requests and certificates that it carries."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

REQUESTS = "certificate_signing_requests"
CERTIFICATES = "certificates"
ERRORS = "request_errors"
RENEW_AT = 2 / 3
"""Of a certificate's life: then another one is asked for."""

_MAX_COMMON_NAME = 64


@dataclasses.dataclass(frozen=True)
class Signed:
    """A certificate, and the request that it answers; all in PEM."""

    request: str
    certificate: str
    chain: tuple[str, ...]

    @property
    def bundle(self) -> str:
        """What a server shows: its certificate first, then those up to the authority."""
        above = [one for one in self.chain if one.strip() != self.certificate.strip()]
        return "".join(f"{one.strip()}\n" for one in (self.certificate, *above))


def new_key() -> str:
    """Make a private key."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def new_request(key: str, names: Sequence[str]) -> str:
    """Write a signing request for host names."""
    common_name = next((name for name in names if len(name) <= _MAX_COMMON_NAME), "gateway")
    builder = x509.CertificateSigningRequestBuilder(
        subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    ).add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False)
    signed = builder.sign(_private_key(key), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def is_request_for(request: str, key: str, names: Sequence[str]) -> bool:
    """Tell whether a request that was sent still asks for what is wanted."""
    try:
        loaded = x509.load_pem_x509_csr(request.encode())
        extension = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        asked = extension.value.get_values_for_type(x509.DNSName)
        ours = _private_key(key).public_key()
    except (ValueError, x509.ExtensionNotFound):
        return False
    return _same(loaded.public_key(), ours) and set(asked) == set(names)


def is_due(certificate: str, now: datetime.datetime) -> bool:
    """Tell whether it is time to ask for another certificate."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        return True
    since = loaded.not_valid_before_utc
    return now >= since + (loaded.not_valid_after_utc - since) * RENEW_AT


def fits(certificate: str, key: str) -> bool:
    """Tell whether a certificate is for a key."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate.encode())
        return _same(loaded.public_key(), _private_key(key).public_key())
    except ValueError:
        return False


def own_request(bag: Mapping[str, str]) -> str:
    """Read the request that was sent; empty when there is none."""
    requests = _list(bag, REQUESTS)
    return str(requests[0].get("certificate_signing_request", "")) if requests else ""


def written(request: str) -> dict[str, str]:
    """Write a request into a data bag."""
    entry = {"certificate_signing_request": request, "ca": False}
    return {REQUESTS: json.dumps([entry])}


def answer(bag: Mapping[str, str], request: str) -> Signed | str:
    """Find the certificate that answers a request.

    Returns:
        The certificate, or why there is none; empty while it has not come yet.
    """
    for entry in _list(bag, CERTIFICATES):
        matching = str(entry.get("certificate_signing_request", "")).strip() == request.strip()
        if matching and not entry.get("revoked"):
            chain = cast("list[Any]", entry.get("chain") or [])
            return Signed(request, str(entry.get("certificate", "")), tuple(map(str, chain)))
    for entry in _list(bag, ERRORS):
        if str(entry.get("csr", "")).strip() == request.strip():
            error = entry.get("error")
            return str(error.get("message") or error.get("name")) if error else "refused"
    return ""


def _list(bag: Mapping[str, str], key: str) -> list[dict[str, Any]]:
    try:
        value = json.loads(bag.get(key, "[]"))
    except ValueError:
        return []
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def _private_key(text: str) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(text.encode(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key of ours")  # noqa: TRY004  (as for every other bad key)
    return key


def _same(one: Any, other: Any) -> bool:
    shape = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return bool(one.public_bytes(*shape) == other.public_bytes(*shape))
