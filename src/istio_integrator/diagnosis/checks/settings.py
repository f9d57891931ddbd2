"""Which of the mesh's settings cannot be read from this cluster?"""

from __future__ import annotations

from collections.abc import Iterable

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding


@registry.check(
    "settings",
    place=15,
    unfelt="it says what the other checks cannot know",
)
def settings(facts: Facts) -> Iterable[Finding]:
    """Name the mesh's settings that this cluster can't show, and the options in their place."""
    istio = facts.mesh
    if istio is None or istio.has_settings:
        return
    if not istio.installed_in:
        yield findings.doubtful(
            f"{istio.webhook_configuration} calls {istio.url} and does not tell which namespace "
            "here is this Istio's: its settings, and policies for the whole mesh, are not known",
            f"juju config {facts.application} istiod-namespace=NAMESPACE",
        )
    rules = facts.config.excluded_outbound_ports
    excluded = {port for rule in rules if rule.pods in ("", names.NAME) for port in rule.ports}
    if istio.captures_outbound and not excluded.issuperset(facts.controller.ports):
        ports = ", ".join(map(str, sorted(facts.controller.ports)))
        yield findings.doubtful(
            "without a mesh configuration it is not known whether sidecars let charms call Juju's "
            f"controller at {ports}; they do not with outboundTrafficPolicy REGISTRY_ONLY",
            f"if so: juju config {facts.application} "
            f"excluded-outbound-ports='[{{pods: {names.NAME}, ports: [{ports}]}}]'",
        )
