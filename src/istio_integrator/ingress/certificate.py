"""The gateway's certificate, from an operator's Secret or a related certificate authority."""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING

import ops

from integrator_contract import bounded
from istio_integrator import texts
from istio_integrator.config import config
from istio_integrator.ingress import gateway, record
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Said
from istio_integrator.relations import endpoints
from istio_integrator.situation.situation import Situation

if TYPE_CHECKING:
    from charmlibs.interfaces import tls_certificates

SECRET_FOLDER = "gateway-tls"  # noqa: S105
_RENEW_AT = 2 / 3
"""The part of a certificate's lifetime after which Juju requests its renewal."""
_LONGEST_COMMON_NAME = 64
_LONGEST_REASON = 300


def requirer(charm: ops.CharmBase) -> tls_certificates.TLSCertificatesRequiresV4 | None:
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
    if any(map(problem, endpoints.Relations(charm).bags(endpoints.CERTIFICATES))):
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


def problem(bag: endpoints.Bag) -> str:
    """Return why the library can't read the data of a provider; empty if it can.

    The library ignores data that is not a list of certificates, and raises on some certificates.
    """
    from charmlibs.interfaces import tls_certificates  # noqa: PLC0415

    try:
        issued, refused, _ = (
            bounded.read_json(bag.content.get(key, "[]"), longest=bounded.LONGEST_OBJECT)
            for key in ("certificates", "request_errors", "capabilities")
        )
        requests = [each["certificate_signing_request"] for each in issued]
        for request in [*requests, *(each["csr"] for each in refused)]:
            tls_certificates.CertificateSigningRequest.from_string(request)
        for each in issued:
            for text in (each["certificate"], each["ca"], *(each.get("chain") or ())):
                tls_certificates.Certificate.from_string(text)
    except bounded.DocumentError as error:
        said = f"sends a document that {error}"
    except Exception:  # The library's parsers raise errors of several libraries.
        said = "sends certificates that can't be read"
    else:
        return ""
    return f"{endpoints.CERTIFICATES}:{bag.relation} {bag.application}: {said}"


class GatewayCertificate:
    """Provides the certificate to the gateway."""

    def __init__(self, situation: Situation, kept: record.Record) -> None:
        self._situation = situation
        self._record = kept
        self._is_related = situation.related.is_related(endpoints.CERTIFICATES)
        self.is_wanted = bool(situation.config.tls_secret) or self._is_related
        """Whether to serve the model by HTTPS."""
        self.messages: list[Message] = []
        """The problems with HTTPS that the last call of `credential` found."""
        self.shown = ""
        """The gateway's certificate in PEM; empty: not known."""

    def credential(self, target: gateway.Target, *, shown: str) -> str:
        """Return the Secret for the gateway, given the one that it uses now; empty: none."""
        self.messages = []
        situation, given = self._situation, self._situation.config.tls_secret
        if not self.is_wanted:
            return ""
        if not given and not target.hosts:
            self.messages.append(Said.CERTIFICATES_NEED_HOSTS(application=situation.application))
            return ""
        name = given or situation.manifests.secrets[SECRET_FOLDER]
        found = situation.cluster.get(cluster.SECRET, name, target.namespace)
        with contextlib.suppress(ValueError):
            text = base64.b64decode(cluster.at(found, "data").get("tls.crt", ""), validate=True)
            self.shown = text.decode()
        if data := {} if given else self._issued(target):
            context = {"name": name, "namespace": target.namespace, "data": data}
            situation.manifests.apply(SECRET_FOLDER, context)
        elif given and found is None:
            self.messages.append(Said.TLS_SECRET_ABSENT(secret=f"{target.namespace}/{name}"))
            # While a Secret is being replaced, Envoy keeps the former certificate.
            return name if name == shown else ""
        return name if data or found else ""

    def prune(self) -> None:
        """Remove the certificate when no certificate authority is related any more."""
        if self._situation.config.tls_secret or not self._is_related:
            self.remove()

    def remove(self) -> None:
        """Remove the certificate, and then the record of its namespace."""
        self._situation.manifests.remove(SECRET_FOLDER)
        self._record.certificate_in = ""

    def _issued(self, target: gateway.Target) -> dict[str, str]:
        if self._record.certificate_in not in ("", target.namespace):
            self._situation.manifests.remove(SECRET_FOLDER)
        problems = filter(None, map(problem, self._situation.related.bags(endpoints.CERTIFICATES)))
        self.messages += [Said.REQUEST_INVALID(request=each) for each in problems]
        requirer = self._situation.certificates
        if requirer is None or not requirer.certificate_requests:
            return {}
        found, key = requirer.get_assigned_certificate(requirer.certificate_requests[0])
        if found is None:
            if reasons := [each.error.message for each in requirer.get_request_errors()]:
                reason = texts.plain(reasons[-1], _LONGEST_REASON)
                self.messages.append(Said.CERTIFICATE_REFUSED(reason=reason))
            elif not self.shown:
                self.messages.append(Said.CERTIFICATE_AWAITED())
            return {}
        self.shown = str(found.certificate)
        above = [str(one) for one in found.chain if one != found.certificate]
        bundle = "".join(f"{one.strip()}\n" for one in (self.shown, *above))
        self._record.certificate_in = target.namespace
        data = {"tls.crt": bundle, "tls.key": f"{key}\n"}
        return {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
