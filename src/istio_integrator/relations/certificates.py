"""The wire format of `tls-certificates`, and the requests and certificates that it carries.

The package charmlibs-interfaces-tls-certificates (1.12) does not carry for us: its wire types are
private, a hostile data bag or a second relation ends its hook with a traceback, and it keeps the
key in a secret of Juju's.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import pydantic
from cryptography import exceptions, x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from istio_integrator import texts
from istio_integrator.kube import cluster, documents
from istio_integrator.relations import endpoints

logger = logging.getLogger(__name__)

ENDPOINT = endpoints.CERTIFICATES
REQUESTS = "certificate_signing_requests"
CERTIFICATES = "certificates"
ERRORS = "request_errors"
RENEW_AT = 2 / 3
"""Of a certificate's life: then another one is asked for."""

_MAX_COMMON_NAME = 64
_LONGEST_PEM = 16384
"""Characters of a certificate or a request; one with an RSA key of 8192 bits has some 3,000."""
_MOST = 10
"""Certificates up to an authority; all of them are in one Secret."""
_LONGEST_REASON = 300
"""Characters of why there is none."""
_UNREADABLE = (ValueError, exceptions.UnsupportedAlgorithm)
"""What reading a certificate that is none raises."""


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
    known = life(certificate)
    return known is None or now >= known[0] + (known[1] - known[0]) * RENEW_AT


def life(certificate: str) -> tuple[datetime.datetime, datetime.datetime] | None:
    """Read from when until when a certificate is valid; None where it is none."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate.encode())
    except _UNREADABLE:
        return None
    return loaded.not_valid_before_utc, loaded.not_valid_after_utc


def fits(certificate: str, key: str) -> bool:
    """Tell whether a certificate is for a key."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate.encode())
        return _same(loaded.public_key(), _private_key(key).public_key())
    except _UNREADABLE:
        return False


def own_request(bag: Mapping[str, str]) -> str:
    """Read the request that was sent; empty when there is none."""
    try:
        for _, entry in _read(bag, REQUESTS, _Request):
            if isinstance(entry, _Request):
                return entry.certificate_signing_request
    except documents.DocumentError as error:
        logger.warning("The request that was sent is not read: it %s.", error)
    return ""


def written(request: str) -> dict[str, str]:
    """Write a request into a data bag."""
    entry = {"certificate_signing_request": request, "ca": False}
    return {REQUESTS: json.dumps([entry])}


def answer(bag: Mapping[str, str], request: str) -> Signed | str:
    """Find the certificate that answers a request.

    Returns:
        The certificate, or why there is none; empty while it has not come yet.
    """
    try:
        for about, entry in _read(bag, CERTIFICATES, _Certificate):
            if about != request.strip():
                continue
            if isinstance(entry, str):
                return f"what was sent is no certificate: {entry}"
            if not entry.revoked:
                return Signed(request, entry.certificate, entry.chain)
        for about, entry in _read(bag, ERRORS, _Refused):
            if about == request.strip():
                return "refused" if isinstance(entry, str) else entry.reason
    except documents.DocumentError as error:
        return texts.plain(f"what was sent {error}", _LONGEST_REASON)
    return ""


Pem = Annotated[str, pydantic.Field(max_length=_LONGEST_PEM)]


class _Entry(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, frozen=True, defer_build=True)


class _Request(_Entry):
    certificate_signing_request: Pem


class _Certificate(_Entry):
    certificate_signing_request: Pem
    certificate: Pem
    chain: Annotated[
        tuple[Pem, ...], pydantic.Strict(False), pydantic.Field(max_length=_MOST)
    ] = ()
    revoked: bool | None = None

    @pydantic.field_validator("chain", mode="before")
    @classmethod
    def _null_is_none(cls, value: object) -> object:
        return () if value is None else value


class _Reason(_Entry):
    name: str = ""
    message: str = ""


class _Refused(_Entry):
    csr: Pem
    error: _Reason = _Reason()

    @property
    def reason(self) -> str:
        said = self.error.message or self.error.name or "refused"
        return texts.plain(said, _LONGEST_REASON)


_Known = TypeVar("_Known", bound=_Entry)


def _read(
    bag: Mapping[str, str], key: str, model: type[_Known]
) -> Iterable[tuple[str, _Known | str]]:
    """Read a list's entries: which request each is about, and it or what is wrong with it."""
    value = documents.read_json(bag.get(key, "[]"), longest=documents.LONGEST_OBJECT)
    for each in cluster.parts({"list": value}, "list"):
        about = each.get("certificate_signing_request", each.get("csr"))
        if isinstance(about, str):
            try:
                yield about.strip(), model.model_validate(each)
            except pydantic.ValidationError as error:
                yield about.strip(), texts.problems(error)


def _private_key(text: str) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(text.encode(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic curve key")  # noqa: TRY004  (as for every other bad key)
    return key


def _same(one: Any, other: Any) -> bool:
    shape = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return bool(one.public_bytes(*shape) == other.public_bytes(*shape))
