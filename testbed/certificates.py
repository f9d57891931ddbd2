"""Keys, certificates and kubeconfigs of one testbed."""

import base64
import dataclasses
import datetime
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=365)


def _name(common: str, organization: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


@dataclasses.dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority in a directory, made at the first use, which it writes into."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._subject = _name("testbed")
        self._start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
        self.pair = Pair(directory / "ca.crt", directory / "ca.key")
        if self.pair.certificate.exists():
            key = serialization.load_pem_private_key(self.pair.key.read_bytes(), None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key = key
        else:
            self._key = ec.generate_private_key(ec.SECP256R1())
            self._sign_itself()

    def _sign_itself(self) -> None:
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            self._builder(self._subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
        )
        self._sign("ca", builder, self._key)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._start)
            .not_valid_after(self._start + _LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )

    def _sign(
        self, stem: str, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey
    ) -> Pair:
        pair = Pair(self._directory / f"{stem}.crt", self._directory / f"{stem}.key")
        certificate = builder.sign(self._key, hashes.SHA256())
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(pair.key, key)
        return pair

    def client(self, stem: str, user: str, group: str = "") -> Pair:
        """Issue a certificate by which a user of a group authenticates to the apiserver."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(user, group), key.public_key()).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        return self._sign(stem, builder, key)

    def server(
        self, stem: str, names: Sequence[str], addresses: Sequence[str], identity: str = ""
    ) -> Pair:
        """Issue a certificate for a server reached by these names and addresses.

        With an identity, such as a SPIFFE ID, it authenticates a client, too.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(one)) for one in addresses]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH]
        if identity:
            alternatives.append(x509.UniformResourceIdentifier(identity))
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        builder = (
            self._builder(_name(stem), key.public_key())
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        )
        return self._sign(stem, builder, key)

    def signing_key(self, stem: str) -> Pair:
        """Write the key pair by which ServiceAccount tokens are signed and verified."""
        key = ec.generate_private_key(ec.SECP256R1())
        pair = Pair(self._directory / f"{stem}.pub", self._directory / f"{stem}.key")
        pair.certificate.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        _write_key(pair.key, key)
        return pair


def kubeconfig(server: str, authority: Path, pair: Pair) -> str:
    """Return a kubeconfig with everything in it, so that the file can be copied anywhere."""

    def data(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "clusters": [
                {
                    "name": "testbed",
                    "cluster": {"server": server, "certificate-authority-data": data(authority)},
                }
            ],
            "users": [
                {
                    "name": "testbed",
                    "user": {
                        "client-certificate-data": data(pair.certificate),
                        "client-key-data": data(pair.key),
                    },
                }
            ],
            "contexts": [
                {"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}
            ],
        },
        indent=2,
    )
