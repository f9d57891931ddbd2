#!/usr/bin/env python3
"""A small authority by the TLS library."""

import datetime

import ops
from charmlibs.interfaces import tls_certificates as tls

LABEL = "authority"
YEAR = datetime.timedelta(days=365)


class Neighbour(ops.CharmBase):
    """Signs whatever it is asked for."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        self.certificates = tls.TLSCertificatesProvidesV4(self, "certificates")
        framework.observe(self.on.certificates_relation_changed, self._on_requests)
        framework.observe(self.on.config_changed, self._on_requests)
        framework.observe(self.on.rotate_action, self._on_rotate)
        framework.observe(self.on.collect_unit_status, self._on_collect_status)

    def _on_requests(self, _: ops.EventBase) -> None:
        answered = {
            str(issued.certificate_signing_request)
            for issued in self.certificates.get_issued_certificates()
        }
        for request in self.certificates.get_certificate_requests():
            if str(request.certificate_signing_request) not in answered:
                self._sign(request)

    def _on_rotate(self, event: ops.ActionEvent) -> None:
        requests = self.certificates.get_certificate_requests()
        for request in requests:
            self._sign(request)
        event.set_results({"signed": len(requests)})

    def _sign(self, request: tls.RequirerCertificateRequest) -> None:
        key, authority = self._authority()
        validity = datetime.timedelta(seconds=int(self.config["validity"]))
        signed = request.certificate_signing_request.sign(authority, key, validity)
        self.certificates.set_relation_certificate(
            tls.ProviderCertificate(
                relation_id=request.relation_id,
                certificate=signed,
                certificate_signing_request=request.certificate_signing_request,
                ca=authority,
                chain=[signed, authority],
            )
        )

    def _authority(self) -> tuple[tls.PrivateKey, tls.Certificate]:
        try:
            content = self.model.get_secret(label=LABEL).get_content(refresh=True)
        except ops.SecretNotFoundError:
            key = tls.PrivateKey.generate()
            attributes = tls.CertificateRequestAttributes(common_name="neighbour", is_ca=True)
            authority = tls.Certificate.generate_self_signed_ca(attributes, key, YEAR)
            content = {"key": str(key), "certificate": str(authority)}
            self.app.add_secret(content, label=LABEL)
        return (
            tls.PrivateKey.from_string(content["key"]),
            tls.Certificate.from_string(content["certificate"]),
        )

    def _on_collect_status(self, event: ops.CollectStatusEvent) -> None:
        event.add_status(ops.ActiveStatus())


if __name__ == "__main__":
    ops.main(Neighbour)
