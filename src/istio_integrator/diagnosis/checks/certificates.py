"""Are the certificates of webhook and gateway valid, and does the API server trust them?"""

from __future__ import annotations

from collections.abc import Iterable

from istio_integrator.admission import certificates as material
from istio_integrator.admission import webhook
from istio_integrator.diagnosis import registry
from istio_integrator.facts import Facts
from istio_integrator.ingress import certificate, record
from istio_integrator.kube import cluster
from istio_integrator.messages import Message, Template


@registry.check(
    "certificates",
    place=90,
    symptoms=(
        "x509-certificate-signed-by-unknown-authority",
        "x509-certificate-has-expired-or-is-not-yet-valid",
    ),
)
def check_certificates(facts: Facts) -> Iterable[Message]:
    """Check the certificates of webhook and gateway, and whether API servers trust them."""
    rotate = f"juju run {facts.situation.application}/leader rotate-certificates"
    name = facts.situation.manifests.secrets[webhook.CERTIFICATES_FOLDER]
    secret = facts.situation.cluster.get(cluster.SECRET, name, facts.situation.model)
    if held := material.KeyPair.read(cluster.at(secret, "data")):
        yield certificate.describe_validity("webhook", held.certificate, rotate)
        configuration = webhook.name_configuration(facts.situation.manifests.owner)
        found = facts.situation.cluster.get(cluster.MUTATING_WEBHOOK, configuration)
        bundles = {
            cluster.at(hook, "clientConfig").get("caBundle")
            for hook in cluster.parts(found or {}, "webhooks")
        }
        if bundles - {material.encode(held.bundle)}:
            yield Template.WEBHOOK_UNTRUSTED(command=rotate)
    if facts.gateway is not None:
        kept = record.Record(facts.situation)
        yield from certificate.GatewayCertificate(facts.situation, kept).report_validity(
            facts.gateway
        )
