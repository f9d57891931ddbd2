"""Who can't reach whom by the options about mutual TLS?"""

from __future__ import annotations

from collections.abc import Iterable

from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.security import (
    mutual_tls,
    policies_upkeep,
    preview,
    preview_mutual_tls,
)


@registry.check(
    "security",
    place=175,
    symptoms=("upstream-connect-error",),
)
def security(facts: Facts) -> Iterable[Finding]:
    """Name who can't reach whom by the option `mtls`."""
    if facts.mesh is None:
        return ()
    part = mutual_tls.MutualTls(facts.context, facts.seen, lambda: 0)
    authorization = policies_upkeep.Authorization(
        facts.context, facts.related, facts.seen, facts.ingress
    )
    subject = preview.Subject(facts.context, facts.config, part, authorization, facts.seen)
    return preview.preview(subject, preview_mutual_tls.OPTION)
