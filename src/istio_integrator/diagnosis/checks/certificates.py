"""Are the certificates of webhook and gateway valid, and does the API server trust them?"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from cryptography import x509

from istio_integrator.admission import certificates as material
from istio_integrator.admission import webhook
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.ingress import certificate
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Said

_LATE = 0.9
"""The part of a certificate's lifetime after which it should have been renewed."""


@registry.check(
    "certificates",
    place=90,
    symptoms=(
        "x509-certificate-signed-by-unknown-authority",
        "x509-certificate-has-expired-or-is-not-yet-valid",
    ),
)
def certificates(facts: Facts) -> Iterable[Message]:
    """Check the certificates of webhook and gateway, and whether API servers trust them."""
    rotate = f"juju run {facts.application}/leader rotate-certificates"
    name = facts.situation.manifests.secrets[webhook.CERTIFICATES_FOLDER]
    secret = facts.cluster.get(cluster.SECRET, name, facts.model)
    if held := material.Material.read(cluster.at(secret, "data")):
        yield _judge("webhook", held.certificate, rotate)
        configuration = webhook.configuration_name(facts.situation.manifests.owner)
        found = facts.cluster.get(cluster.MUTATING_WEBHOOK, configuration)
        bundles = {
            cluster.at(hook, "clientConfig").get("caBundle")
            for hook in cluster.parts(found or {}, "webhooks")
        }
        if bundles - {material.encoded(held.bundle)}:
            yield Said.WEBHOOK_UNTRUSTED(command=rotate)
    # The hook of the action has read the gateway's certificate.
    target, pem = facts.gateway, facts.parts.ingress.certificate.shown
    if target is not None and pem:
        secrets = facts.situation.manifests.secrets
        name = facts.config.tls_secret or secrets[certificate.SECRET_FOLDER]
        show = f"kubectl -n {target.namespace} describe secret {name}"
        yield _judge(f"gateway ({name})", pem, show)


def _judge(owner: str, pem: str, command: str) -> Message:
    now = datetime.datetime.now(datetime.UTC)
    try:
        loaded = x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        return Said.CERTIFICATE_UNREADABLE(owner=owner, command=command)
    since, until = loaded.not_valid_before_utc, loaded.not_valid_after_utc
    if now < since:
        return Said.CERTIFICATE_EARLY(owner=owner, time=_minute(since), command=command)
    if now > until:
        return Said.CERTIFICATE_ENDED(owner=owner, time=_minute(until), command=command)
    if now > since + (until - since) * _LATE:
        return Said.CERTIFICATE_ENDS(owner=owner, time=_minute(until), command=command)
    return Said.CERTIFICATE_VALID(owner=owner, time=_minute(until))


def _minute(time: datetime.datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"
