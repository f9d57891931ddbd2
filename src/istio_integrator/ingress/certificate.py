"""The gateway's certificate, from an operator's Secret or a related certificate authority.

The Gateway names a verified copy. An Envoy that refuses a certificate opens none of the gateway's
ports at its next start.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import ops
from cryptography import exceptions, x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from integrator_contract import bounded, charm_facts
from istio_integrator import error_messages, texts
from istio_integrator.asked import gateway
from istio_integrator.config import config
from istio_integrator.ingress import record
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Template
from istio_integrator.relations import endpoints
from istio_integrator.situation.situation import Situation

if TYPE_CHECKING:
    from charmlibs.interfaces import tls_certificates

SECRET_FOLDER = "gateway-tls"  # noqa: S105
_RENEW_AT = 2 / 3
"""The part of a certificate's lifetime after which Juju requests its renewal."""
_LONGEST_COMMON_NAME = 64
_LONGEST_REASON = 300
_LATE = 0.9
"""The part of a certificate's lifetime after which it should have been renewed."""
_NAMES = (("cert", "key"), ("tls.crt", "tls.key"))
"""The names of certificate and key in a Secret, in the order in which istiod looks for them
(istio, pilot/pkg/credentials/kube/secrets.go)."""
_REFUSALS = (
    errors.RefusedError,
    errors.InvalidError,
    errors.ForbiddenError,
    errors.ForeignError,
)
"""Errors that another attempt would meet again. After any other one the Gateway stays as it is."""
_IN_STATUS = (
    Template.CERTIFICATE_EARLY,
    Template.CERTIFICATE_ENDED,
    Template.CERTIFICATE_OF_OTHER_HOSTS,
)
"""What the status says of a certificate that is served."""
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)

_E = TypeVar("_E", bound=x509.ExtensionType)


def observe_relation(charm: ops.CharmBase) -> tls_certificates.TLSCertificatesRequiresV4 | None:
    """Observe the relation `certificates` by its library.

    Returns:
        The library's object. None without a relation, with invalid options, or while a provider
        sends data on which the library would raise.
    """
    if not charm.model.relations[endpoints.CERTIFICATES]:
        return None
    try:
        hosts = config.Config.load(charm.config).hosts
    except errors.ConfigError:
        return None
    if any(map(find_problem, endpoints.Relations(charm).list_bags(endpoints.CERTIFICATES))):
        return None
    # Most models have no such relation, and the import takes as long as a request to the API
    # server.
    from charmlibs.interfaces import tls_certificates  # noqa: PLC0415

    short = next((host for host in hosts if len(host) <= _LONGEST_COMMON_NAME), None)
    request = tls_certificates.CertificateRequestAttributes
    return tls_certificates.TLSCertificatesRequiresV4(
        charm,
        endpoints.CERTIFICATES,
        certificate_requests=[request(common_name=short, sans_dns=hosts)] if hosts else [],
        mode=tls_certificates.Mode.APP,
        refresh_events=[charm.on.config_changed, charm.on.update_status, charm.on.upgrade_charm],
        renewal_relative_time=_RENEW_AT,
        key_algorithm=tls_certificates.KeyAlgorithm.ECDSA,
    )


def find_problem(bag: endpoints.Bag) -> str:
    """Return why the library can't read the data of a provider; empty if it can.

    The library ignores data that is not a list of certificates, and raises on some certificates.
    """
    from charmlibs.interfaces import tls_certificates  # noqa: PLC0415

    try:
        issued, refused, _ = (
            bounded.read_json(bag.content.get(key, "[]"), longest=bounded.LONGEST_OBJECT)
            for key in ("certificates", "request_errors", "capabilities")
        )
        read = tls_certificates.Certificate.from_string
        ask = tls_certificates.CertificateSigningRequest.from_string
        for each in refused:
            ask(each["csr"])
        for text in (one for each in issued for one in (each["ca"], *(each.get("chain") or ()))):
            read(text)
        requests = [ask(each["certificate_signing_request"]) for each in issued]
        pairs = zip(requests, [read(each["certificate"]) for each in issued], strict=True)
        if all(request.matches_certificate(one) for request, one in pairs):
            return ""
        said = "sends the certificate of another key"
    except bounded.DocumentError as error:
        said = f"sends a document that {error}"
    except Exception:  # The library's parsers raise errors of several libraries.
        said = "sends certificates that can't be read"
    return f"{endpoints.CERTIFICATES}:{bag.relation} {bag.application}: {said}"


def verify_secret(data: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Return a Secret's certificates and key, as far as Envoy reads them.

    Args:
        data: The data of the Secret, with the server's certificate first.
        known: Data that this function returned before.

    Raises:
        ValueError: Envoy would refuse them, with the reason.
    """
    named = next((pair for pair in _NAMES if all(map(data.get, pair))), None)
    if named is None:
        raise ValueError("tls.crt or tls.key is missing")
    certificate, key = (data[name] for name in named)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    try:
        chain = x509.load_pem_x509_certificates(base64.b64decode(certificate))
        lack = _find_defect(chain[0])
    except (ValueError, exceptions.UnsupportedAlgorithm):
        raise ValueError("the certificate cannot be read") from None
    if lack:
        raise ValueError(lack)
    load = functools.partial(serialization.load_pem_private_key, password=None)
    try:
        found: Any = load(base64.b64decode(key), unsafe_skip_rsa_key_validation=True)
        written = found.private_bytes(pem, pkcs8, serialization.NoEncryption())
        parts = {"tls.crt": b"".join(one.public_bytes(pem) for one in chain), "tls.key": written}
        result = {name: base64.b64encode(part).decode() for name, part in parts.items()}
        if result != known:
            # This takes seconds for a long RSA key.
            load(written)
    except TypeError:
        raise ValueError("the key is encrypted") from None
    except (ValueError, exceptions.UnsupportedAlgorithm):
        raise ValueError("the key cannot be read") from None
    if found.public_key() != chain[0].public_key():
        raise ValueError("key and certificate do not match")
    return result


def _read_verified(known: Mapping[str, str]) -> dict[str, str]:
    """Return the data of the charm's copy; empty if it is useless."""
    with contextlib.suppress(ValueError):
        return verify_secret(known, known)
    return {}


def _decode_pem(data: Mapping[str, str]) -> str:
    return base64.b64decode(data["tls.crt"]).decode() if data else ""


def _find_defect(server: x509.Certificate) -> str:
    """Return why Envoy refuses a server's certificate; empty if it accepts it.

    The sources are Envoy's source/common/tls/context_impl.cc and BoringSSL's ssl/ssl_cert.cc.
    """
    key, der = server.public_key(), serialization.Encoding.DER
    is_rsa = isinstance(key, rsa.RSAPublicKey)
    is_ec = isinstance(key, ec.EllipticCurvePublicKey)
    is_fit = is_rsa and 2048 <= key.key_size <= 8192 and key.public_numbers().e < 1 << 33
    is_fit = is_fit or (is_ec and isinstance(key.curve, _CURVES))
    # RSA-PSS keys, and curves that are given by their numbers, are written differently.
    usual = key.public_bytes(der, serialization.PublicFormat.SubjectPublicKeyInfo)
    if not (is_fit and usual in server.tbs_certificate_bytes):
        return "the key is neither RSA of 2048 to 8192 bits nor P-256, P-384 or P-521"
    usage = _find_extension(server, x509.KeyUsage)
    if is_ec and usage and not usage.digital_signature:
        return "the certificate's key usage lacks digitalSignature"
    if x509.TLSFeatureType.status_request in (_find_extension(server, x509.TLSFeature) or ()):
        return "the certificate requires OCSP stapling"
    return ""


def _find_extension(loaded: x509.Certificate, kind: type[_E]) -> _E | None:
    return next((each.value for each in loaded.extensions if isinstance(each.value, kind)), None)


def describe_validity(owner: str, pem: str, command: str) -> Message:
    """Tell how long a certificate is valid."""
    now = datetime.datetime.now(datetime.UTC)
    try:
        loaded = x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        return Template.CERTIFICATE_UNREADABLE(owner=owner, command=command)
    since, until = loaded.not_valid_before_utc, loaded.not_valid_after_utc
    if now < since:
        return Template.CERTIFICATE_EARLY(owner=owner, time=_format_time(since), command=command)
    if now > until:
        return Template.CERTIFICATE_ENDED(owner=owner, time=_format_time(until), command=command)
    if now > since + (until - since) * _LATE:
        return Template.CERTIFICATE_ENDS(owner=owner, time=_format_time(until), command=command)
    return Template.CERTIFICATE_VALID(owner=owner, time=_format_time(until))


def read_life(owner: charm_facts.Owner, pem: str) -> Iterable[charm_facts.Certificate]:
    """Return when a certificate is valid; nothing if it can't be read."""
    try:
        loaded = x509.load_pem_x509_certificate(pem.encode())
    except (ValueError, exceptions.UnsupportedAlgorithm):
        return
    since, until = loaded.not_valid_before_utc, loaded.not_valid_after_utc
    yield charm_facts.Certificate(
        owner=owner, not_before=since.timestamp(), not_after=until.timestamp()
    )


def _format_time(time: datetime.datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


class GatewayCertificate:
    """Provides the certificate to the gateway."""

    def __init__(self, situation: Situation, kept: record.Record) -> None:
        self._situation = situation
        self._record = kept
        self.name = situation.manifests.secrets[SECRET_FOLDER]
        """The Secret that the Gateway names."""
        self._is_related = situation.related.is_related(endpoints.CERTIFICATES)
        bags = situation.related.list_bags(endpoints.CERTIFICATES)
        self._authority = ", ".join(bag.application for bag in bags)
        self.is_wanted = bool(situation.config.tls_secret) or self._is_related
        """Whether to serve the model by HTTPS."""
        self.messages: list[Message] = []
        """The messages about HTTPS of the last call of `apply`."""
        self.served_pem = ""
        """The gateway's certificate in PEM; empty: not known."""

    def apply(self, target: gateway.Target) -> str:
        """Return the Secret with the last verified certificate, for the gateway; empty: none."""
        self.messages, self.served_pem = [], ""
        if not self.is_wanted:
            return ""
        manifests, data = self._situation.manifests, dict[str, str]()
        try:
            known = self._read_copy(target)
            data = _read_verified(known)
            if wanted := self._choose_data(target, data):
                if known.keys() - wanted.keys():
                    # istiod prefers some other names, which an apply would keep.
                    manifests.remove(SECRET_FOLDER)
                    data = {}
                context = {"name": self.name, "namespace": target.namespace, "data": wanted}
                manifests.apply(SECRET_FOLDER, context)
                data, self._record.certificate_namespace = wanted, target.namespace
        except _REFUSALS as error:
            said = error_messages.explain_error(error, application=self._situation.application)
            self.messages.append(said)
        if data:
            self.served_pem = _decode_pem(data)
            self.messages += [
                each for each in self.report_validity(target) if each.template in _IN_STATUS
            ]
        return self.name if data else ""

    def report_validity(self, target: gateway.Target) -> Iterable[Message]:
        """Tell how long the served certificate is valid, and which host it does not name."""
        shown = self.served_pem or (
            self.is_wanted and _decode_pem(_read_verified(self._read_copy(target)))
        )
        if not shown:
            return
        name = self._situation.config.tls_secret or self.name
        owner = f"gateway ({name})"
        yield describe_validity(
            owner, shown, f"kubectl -n {target.namespace} describe secret {name}"
        )
        loaded = x509.load_pem_x509_certificate(shown.encode())
        found = _find_extension(loaded, x509.SubjectAlternativeName) or ()
        names = {each.value.lower() for each in found if isinstance(each, x509.DNSName)}
        parents = {host: f"*.{host.partition('.')[2]}" for host in target.hosts}
        if others := [host for host, parent in parents.items() if not names & {host, parent}]:
            yield Template.CERTIFICATE_OF_OTHER_HOSTS(owner=owner, hosts=texts.join_names(others))

    def prune(self) -> None:
        """Remove the certificate when HTTPS is not wanted any more."""
        if not self.is_wanted:
            self.remove()

    def remove(self) -> None:
        """Remove the certificate, and then the record of its namespace."""
        self._situation.manifests.remove(SECRET_FOLDER)
        self._record.certificate_namespace = ""

    def _read_copy(self, target: gateway.Target) -> Mapping[str, str]:
        """Read this charm's copy, which another team may have changed."""
        found = self._situation.cluster.get(cluster.SECRET, self.name, target.namespace)
        return cluster.at(found, "data") if self._situation.manifests.is_ours(found) else {}

    def _choose_data(self, target: gateway.Target, data: dict[str, str]) -> dict[str, str]:
        """Return the certificate to serve, which is the present one if the source is useless."""
        try:
            source = self._read_source(target)
            return data if source is None else verify_secret(source, data)
        except ValueError as error:
            served = "the last verified certificate is served" if data else "HTTPS is not served"
            source, command = f"certificate from {self._authority}", "juju status --relations"
            if given := self._situation.config.tls_secret:
                source = f"Secret {target.namespace}/{given}"
                command = f"kubectl -n {target.namespace} describe secret {given}"
            said = Template.CERTIFICATE_USELESS
            about = {"source": source, "lack": str(error), "consequence": served}
            self.messages.append(said(**about, command=command))
            return data

    def _read_source(self, target: gateway.Target) -> Mapping[str, str] | None:
        """Read the operator's Secret or the relation's answer; None without an answer."""
        if given := self._situation.config.tls_secret:
            found = self._situation.cluster.get(cluster.SECRET, given, target.namespace)
            if found is None:
                raise ValueError("not found")
            return cluster.at(found, "data")
        if not target.hosts:
            application = self._situation.application
            self.messages.append(Template.CERTIFICATES_NEED_HOSTS(application=application))
            return None
        problems = filter(
            None, map(find_problem, self._situation.related.list_bags(endpoints.CERTIFICATES))
        )
        self.messages += [Template.REQUEST_INVALID(request=each) for each in problems]
        requirer = self._situation.certificates
        if requirer is None or not requirer.certificate_requests:
            return None
        found, key = requirer.get_assigned_certificate(requirer.certificate_requests[0])
        if found is None:
            if reasons := [each.error.message for each in requirer.get_request_errors()]:
                reason = texts.escape(reasons[-1], _LONGEST_REASON)
                self.messages.append(Template.CERTIFICATE_REFUSED(reason=reason))
            else:
                self.messages.append(Template.CERTIFICATE_AWAITED(applications=self._authority))
            return None
        above = [str(one) for one in found.chain if one != found.certificate]
        bundle = "".join(f"{one.strip()}\n" for one in (str(found.certificate), *above))
        data = {"tls.crt": bundle, "tls.key": f"{key}\n"}
        return {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
