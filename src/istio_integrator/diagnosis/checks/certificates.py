"""How old are the certificates of webhook and gateway, and does the API server trust them?"""

from __future__ import annotations

import base64
import dataclasses
import datetime
from collections.abc import Iterable

from cryptography import x509

from istio_integrator import findings
from istio_integrator.admission import certificates as material
from istio_integrator.admission import webhook
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, fences

LATE = 0.9
"""Of a certificate's life: whatever renews it should have done so."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate:
    """One that somebody relies on."""

    name: str
    """What for."""
    pem: str
    next: str
    """How it is replaced."""


@registry.check(
    "certificates",
    place=90,
    question="how old are those of webhook and gateway; does the API server trust them",
    reads="Secrets",
    symptoms=(
        "x509-certificate-signed-by-unknown-authority",
        "x509-certificate-has-expired-or-is-not-yet-valid",
    ),
)
def certificates(facts: Facts) -> Iterable[Finding]:
    """Look at the Secrets of the webhook and the gateway, and at the webhook's configuration."""
    rotate = f"juju run {facts.application}/leader rotate-certificates"
    name = facts.manifests.secrets[webhook.CERTIFICATES_FOLDER]
    secret = facts.cluster.get(cluster.SECRET, name, facts.model)
    shown: list[Certificate] = []
    if held := material.Material.read(cluster.at(secret, "data")):
        shown += [
            Certificate(name="webhook", pem=held.leaf, next=rotate),
            Certificate(name="its authority", pem=held.ca, next=rotate),
        ]
        yield from judge(shown, now=facts.now())
        configuration = webhook.configuration_name(facts.manifests.owner)
        found = facts.cluster.get(cluster.MUTATING_WEBHOOK, configuration)
        bundles = [
            cluster.at(hook, "clientConfig").get("caBundle", "")
            for hook in cluster.parts(found or {}, "webhooks")
        ]
        wanted = material.encoded(held.bundle)
        yield from judge_trust(bundles, wanted, application=facts.application)
    # Last: the right to read a Secret in the gateway's namespace may be missing.
    yield from judge(_of_gateway(facts), now=facts.now())
    if not shown and facts.own_gateway is None:
        yield findings.fine("none in use")


def _of_gateway(facts: Facts) -> Iterable[Certificate]:
    """Read what the gateway shows for our hosts."""
    target = facts.gateway
    if target is None or facts.own_gateway is None:
        return
    for server in cluster.parts(cluster.at(facts.own_gateway, "spec"), "servers"):
        with fences.around(cluster.reference(facts.own_gateway)):
            if name := cluster.at(server, "tls").get("credentialName"):
                secret = facts.cluster.get(cluster.SECRET, name, target.namespace)
                pem = cluster.at(secret, "data").get("tls.crt", "")
                yield Certificate(
                    name=f"gateway ({name})",
                    pem=base64.b64decode(pem).decode(errors="replace"),
                    next=f"kubectl -n {target.namespace} describe secret {name}",
                )


def judge(shown: Iterable[Certificate], *, now: datetime.datetime) -> Iterable[Finding]:
    """Judge how old certificates are."""
    well: list[str] = []
    for each in shown:
        try:
            loaded = x509.load_pem_x509_certificate(each.pem.encode())
        except ValueError:
            yield findings.broken(f"{each.name}: the certificate can't be read", each.next)
            continue
        since, until = loaded.not_valid_before_utc, loaded.not_valid_after_utc
        if now > until:
            yield findings.broken(f"{each.name}: the certificate ended {_day(until)}", each.next)
        elif now < since:
            yield findings.broken(
                f"{each.name}: the certificate is valid only from {_day(since)}", each.next
            )
        elif now > since + (until - since) * LATE:
            yield findings.doubtful(f"{each.name}: the certificate ends {_day(until)}", each.next)
        else:
            well.append(f"{each.name}: {(now - since).days} of {(until - since).days} days old")
    if well:
        yield findings.fine(", ".join(well))


def judge_trust(bundles: Iterable[str], wanted: str, *, application: str) -> Iterable[Finding]:
    """Judge whether API servers trust the webhook's authority.

    Args:
        bundles: Of each entry of the webhook configuration, as it is there.
        wanted: What they should be.
        application: Ours.
    """
    if any(bundle != wanted for bundle in bundles):
        yield findings.broken(
            "the webhook configuration trusts another authority than the servers' certificate has",
            f"juju run {application}/leader rotate-certificates",
        )


def _day(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")
