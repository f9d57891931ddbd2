"""Does a unit act?"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster

LATE = 3
"""Lengths of a Lease without a renewal: then nobody holds it."""


@registry.check(
    "lease", place=230, question="does a unit act", reads="the Lease", symptoms=("12-notready",)
)
def lease(facts: Facts) -> Iterable[Finding]:
    """Look at the Lease of the unit that acts."""
    held = facts.cluster.get(cluster.LEASE, f"{facts.application}-lifecycle", facts.model)
    return judge(held, now=facts.now(), application=facts.application)


def judge(
    held: cluster.Object | None, *, now: datetime.datetime, application: str
) -> Iterable[Finding]:
    """Judge whether a unit acts: the holder of the Lease.

    Args:
        held: The Lease.
        now: The time, with its zone.
        application: Ours.
    """
    show = f"juju status {application} && juju ssh --container lifecycle {application}/leader "
    show += "/charm/bin/pebble services"
    spec = cluster.at(held, "spec")
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if held is None:
        yield findings.broken("no unit ever stopped a proxy: there is no Lease", show)
    elif not holder or not renewed:
        yield findings.doubtful("no unit holds the Lease at this moment", show)
    else:
        age = now - datetime.datetime.fromisoformat(renewed)
        length = datetime.timedelta(seconds=int(spec.get("leaseDurationSeconds") or 15))
        if age > LATE * length:
            seconds = int(age.total_seconds())
            seen = f"{holder} holds the Lease and has not renewed it for {seconds} s"
            yield findings.broken(seen, show)
        else:
            yield findings.fine(f"{holder} acts")
