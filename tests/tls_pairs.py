"""Certificates and keys that operators put into Secrets, and whether a gateway may serve them."""

import base64
import datetime
import functools
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
PLAIN = serialization.NoEncryption()
NAMES = ("*.Example.com",)
USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
NO_PAIR = "tls.crt or tls.key is missing"
UNREADABLE = "the certificate cannot be read"
KEY_UNREADABLE = "the key cannot be read"
MISMATCH = "key and certificate do not match"
KIND = "the key is neither RSA of 2048 to 8192 bits nor P-256, P-384 or P-521"


@functools.cache
def key(kind="p256"):
    """Return a key of a kind; the same for equal kinds."""
    curves = {"p224": ec.SECP224R1, "p256": ec.SECP256R1, "another": ec.SECP256R1}
    curves |= {"p384": ec.SECP384R1, "p521": ec.SECP521R1, "k256": ec.SECP256K1}
    if kind == "ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    if kind in curves:
        return ec.generate_private_key(curves[kind]())
    return rsa.generate_private_key(65537, int(kind))


def now(days=0):
    """Return the time so many days from now."""
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)


def certificate(kind="p256", names=NAMES, days=(-1, 90), extensions=(), public=None):
    """Write a certificate, self-signed by default, valid from and until so many days from now."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a gateway")])
    begin, end = map(now, days)
    public = public or key(kind).public_key()
    builder = (
        x509.CertificateBuilder(name, name, public, x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )
    address = x509.IPAddress(ipaddress.ip_address("192.0.2.1"))
    listed = [address, *map(x509.DNSName, names)]
    hosts = [x509.SubjectAlternativeName(listed)] if names else []
    for each in (*hosts, *extensions):
        builder = builder.add_extension(each, critical=False)
    digest = None if kind == "ed25519" else hashes.SHA256()
    return builder.sign(key(kind), digest).public_bytes(PEM).decode()


def private(kind="p256", form=PKCS8, encryption=PLAIN):
    """Write a key."""
    return key(kind).private_bytes(PEM, form, encryption).decode()


def data(text, secret, names=("tls.crt", "tls.key"), **more):
    """Return the data of a Secret."""
    texts = {**dict(zip(names, (text, secret), strict=True)), **more}
    return {name: base64.b64encode(each.encode()).decode() for name, each in texts.items()}


def pair(kind="p256", **values):
    """Return the data of a Secret that a gateway may serve."""
    return data(certificate(kind, **values), private(kind))


def _usage(*uses):
    return x509.KeyUsage(**{use: use in uses for use in USES})


def corrupt_rsa():
    """Write an RSA key with a wrong number."""
    found = key("2048")
    assert isinstance(found, rsa.RSAPrivateKey)
    numbers = found.private_numbers()
    values = {name: getattr(numbers, name) for name in ("p", "q", "dmp1", "dmq1", "iqmp")}
    values["public_numbers"] = numbers.public_numbers
    broken = rsa.RSAPrivateNumbers(d=numbers.d + 2, **values)
    found = broken.private_key(unsafe_skip_rsa_key_validation=True)
    return found.private_bytes(PEM, PKCS8, PLAIN).decode()


SEC1 = serialization.PrivateFormat.TraditionalOpenSSL
OPENSSH = serialization.PrivateFormat.OpenSSH
LOCKED = serialization.BestAvailableEncryption(b"locked")
CUT = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
AUTHORITY = ("key_cert_sign", "crl_sign")
STAPLED = x509.TLSFeature([x509.TLSFeatureType.status_request])


def served():
    """Yield what a gateway may serve, each with its name."""
    for kind in ("p256", "p384", "p521", "2048", "4096"):
        yield kind, pair(kind)
    good, other = certificate(), certificate("another")
    yield "generic keys", data(good, private(), ("cert", "key"), cacert=other)
    yield "with an authority", data(good, private(), **{"ca.crt": other})
    yield "text after", data(f"{good}text\n", private())
    yield "unfinished second", data(good + CUT.partition("AAAA")[0], private())
    yield "windows", data(good.replace("\n", "\r\n"), private().replace("\n", "\r\n"))
    yield "mark at the start", data(f"\ufeff{good}", private())
    yield "indented", data(good.replace("\n", "\n  "), private())
    yield "key beside", data(private() + good, private("p256", SEC1))
    yield "weak key above", data(good + certificate("p224"), private())
    yield "long chain", data(good + other * 500, private())
    yield "many names", pair(names=[f"h{number}.example.com" for number in range(3000)])
    yield "RSA of an authority", pair("2048", extensions=[_usage(*AUTHORITY)])
    yield "ended", pair(days=(-9, -3))


def refused():
    """Yield what a gateway must not serve, each with its name and the reason."""
    good = certificate()
    for name, found in {
        "nothing": {},
        "empty": data("", ""),
        "other names": data(good, private(), ("crt", "pem")),
        "half": {"tls.crt": pair()["tls.crt"], "key": pair()["tls.key"]},
        "authority alone": {"ca.crt": pair()["tls.crt"]},
    }.items():
        yield name, found, NO_PAIR
    yield "no PEM", data("theirs", "theirs"), UNREADABLE
    yield "broken second", data(good + CUT, private()), UNREADABLE
    yield "key for certificate", data(private(), private()), UNREADABLE
    yield "certificate for key", data(good, good), KEY_UNREADABLE
    yield "OpenSSH", data(good, private("p256", OPENSSH)), KEY_UNREADABLE
    yield "wrong number", data(certificate("2048"), corrupt_rsa()), KEY_UNREADABLE
    yield "another key", data(good, private("another")), MISMATCH
    yield "another kind", data(good, private("2048")), MISMATCH
    yield "out of order", data(certificate("another") + good, private()), MISMATCH
    for name, form in {"PKCS8": PKCS8, "SEC1": SEC1}.items():
        locked = private("p256", form, LOCKED)
        yield f"encrypted {name}", data(good, locked), "the key is encrypted"
    for kind in ("1024", "p224", "k256", "ed25519"):
        yield kind, pair(kind), KIND
    yield (
        "EC of an authority",
        pair(extensions=[_usage(*AUTHORITY)]),
        ("the certificate's key usage lacks digitalSignature"),
    )
    yield "stapled", pair(extensions=[STAPLED]), "the certificate requires OCSP stapling"
