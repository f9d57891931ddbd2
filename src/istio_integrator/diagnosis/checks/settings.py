"""What of the mesh's settings can't be known from this cluster?"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from integrator_contract import names, pods
from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.mesh import installation

_APPLICATIONS = ("", names.NAME)
"""Selectors of rules that hold for the pods of every charm."""


@registry.check(
    "settings",
    place=15,
    question="what of the mesh's settings can't be known from this cluster, and how to tell it",
    reads="webhook configurations, the ConfigMap of the mesh",
    unfelt="it says what the other checks can't know",
)
def settings(facts: Facts) -> Iterable[Finding]:
    """Look for the settings of a mesh whose istiod is outside of the cluster."""
    if facts.mesh is None:
        return ()
    return judge(
        facts.mesh,
        facts.config.excluded_outbound_ports,
        controller=facts.controller.ports,
        application=facts.application,
    )


def judge(
    istio: installation.Mesh,
    rules: Iterable[pods.Ports],
    *,
    controller: Collection[int],
    application: str,
) -> Iterable[Finding]:
    """Say what is not known without the mesh configuration, and how to tell it.

    What a dry-run pod shows of it is known. It does not show whether proxies let out what Istio
    does not know, such as calls of charms to Juju's controller.

    Args:
        istio: The one that was chosen.
        rules: The option `excluded-outbound-ports`.
        controller: The ports of Juju's controller.
        application: Ours.
    """
    if istio.has_settings:
        return
    if not istio.installed_in:
        yield findings.doubtful(
            f"{istio.webhook_configuration} calls {istio.url} and does not tell which namespace "
            "here is this Istio's: its settings, and policies for the whole mesh, are not known",
            f"juju config {application} istiod-namespace=NAMESPACE",
        )
    excluded = {port for rule in rules if rule.pods in _APPLICATIONS for port in rule.ports}
    if istio.captures_outbound and not excluded.issuperset(controller):
        where = f" in {istio.installed_in}" if istio.installed_in else ""
        ports = ", ".join(map(str, sorted(controller)))
        yield findings.doubtful(
            f"without a mesh configuration{where} it is not known whether sidecars let charms "
            f"call Juju's controller at {ports}; they don't with outboundTrafficPolicy "
            "REGISTRY_ONLY",
            f"if so: juju config {application} "
            f"excluded-outbound-ports='[{{pods: {names.NAME}, ports: [{ports}]}}]'",
        )
