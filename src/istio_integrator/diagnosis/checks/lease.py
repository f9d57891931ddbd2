"""Does a unit act?"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster

_LATE = 3
"""Durations of a Lease without a renewal, after which no unit holds it."""


@registry.check("lease", place=230, symptoms=("12-notready",))
def lease(facts: Facts) -> Iterable[Finding]:
    """Check whether a unit holds the Lease, and so acts."""
    held = facts.cluster.get(cluster.LEASE, f"{facts.application}-lifecycle", facts.model)
    yield judge(held, now=facts.now(), application=facts.application)


def judge(held: cluster.Object | None, *, now: datetime.datetime, application: str) -> Finding:
    """Judge whether a unit holds the Lease, and renews it."""
    show = f"juju status {application} && juju ssh --container lifecycle {application}/leader "
    show += "/charm/bin/pebble services"
    spec = cluster.at(held, "spec")
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder or not renewed:
        say = findings.broken if held is None else findings.doubtful
        return say("no unit holds the Lease at this moment", show)
    age = (now - datetime.datetime.fromisoformat(renewed)).total_seconds()
    if age > _LATE * int(spec.get("leaseDurationSeconds") or 15):
        seen = f"{holder} holds the Lease and has not renewed it for {age:.0f} s"
        return findings.broken(seen, show)
    return findings.fine(f"{holder} acts")
