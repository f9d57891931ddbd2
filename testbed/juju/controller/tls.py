"""Certificates: an authority for the controller and for models' webhooks."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFE = datetime.timedelta(days=3650)


class Authority:
    """A certificate authority in a folder, made at the first use."""

    def __init__(self, folder: Path) -> None:
        self._certificate_file = folder / "ca.crt"
        self._key_file = folder / "ca.key"
        folder.mkdir(parents=True, exist_ok=True)
        if not self._certificate_file.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            self._key_file.write_bytes(_key_pem(key))
            self._key_file.chmod(0o600)
            certificate = _build("juju-ca", key, None, None, ())
            self._certificate_file.write_bytes(_pem(certificate))

    @property
    def certificate(self) -> str:
        """The authority's certificate, as PEM."""
        return self._certificate_file.read_text()

    def issue(self, names: tuple[str, ...]) -> tuple[str, str]:
        """Issue a server certificate for names and addresses: certificate and key, as PEM."""
        authority = x509.load_pem_x509_certificate(self._certificate_file.read_bytes())
        signer = serialization.load_pem_private_key(self._key_file.read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _build(names[0], key, authority, signer, names)
        return _pem(certificate).decode(), _key_pem(key).decode()


def _build(
    common_name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    signer: ec.EllipticCurvePrivateKey | None,
    names: tuple[str, ...],
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = datetime.datetime.now(datetime.UTC)
    authority_key = (signer or key).public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFE)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key), critical=False
        )
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(signer or key, hashes.SHA256())


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
