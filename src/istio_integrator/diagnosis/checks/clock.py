"""Do the clocks of our node, the API server and the other nodes agree?"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable, Mapping

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, errors, fences
from istio_integrator.mesh import probe

logger = logging.getLogger(__name__)

CLOCK_SKEW = datetime.timedelta(seconds=30)
"""Between two clocks: certificates and Leases stand that much."""


@registry.check(
    "clock",
    place=240,
    question="do the clocks of node, API server and other nodes agree",
    reads="a dry-run pod, heartbeats",
    symptoms=("x509-certificate-has-expired-or-is-not-yet-valid",),
)
def clock(facts: Facts) -> Iterable[Finding]:
    """Ask the API server and the nodes for the time."""
    server = _server_time(facts)
    return judge(local=facts.now(), server=server, nodes=_heartbeats(facts.nodes))


def _server_time(facts: Facts) -> datetime.datetime | None:
    """Ask the API server for its time, which it writes on a pod that it does not keep."""
    like = facts.cluster.get(cluster.POD, facts.context.pod, facts.model)
    asked = probe.pod(facts.model, {names.INJECT: "false"}, like=like)
    try:
        created = facts.cluster.create(asked, dry_run=True)
    except errors.ApiError as error:
        logger.debug("The API server's time is not known: %s", error)
        return None
    told = created["metadata"].get("creationTimestamp")
    return datetime.datetime.fromisoformat(told) if told else None


def _heartbeats(nodes: Iterable[cluster.Object]) -> Mapping[str, datetime.datetime]:
    """Read when each node last wrote its own state."""
    last: dict[str, datetime.datetime] = {}
    for node in nodes:
        with fences.around(cluster.reference(node)):
            for condition in cluster.parts(cluster.at(node, "status"), "conditions"):
                if beat := condition.get("lastHeartbeatTime"):
                    moment = datetime.datetime.fromisoformat(beat)
                    name = node["metadata"]["name"]
                    last[name] = max(moment, last.get(name, moment))
    return last


def judge(
    *,
    local: datetime.datetime,
    server: datetime.datetime | None,
    nodes: Mapping[str, datetime.datetime],
) -> Iterable[Finding]:
    """Judge whether the clocks agree.

    Args:
        local: Of our own node.
        server: Of the API server at the same moment; None where it can't be asked.
        nodes: The last heartbeat of each node, by that node's own clock.
    """
    sync = "timedatectl status"
    doubts: list[Finding] = []
    if server is not None and abs(server - local) > CLOCK_SKEW:
        seconds = int((local - server).total_seconds())
        doubts.append(
            findings.broken(
                f"the clock of this unit's node is {seconds:+d} s from the API server's", sync
            )
        )
    ahead = {
        name: beat - (server or local)
        for name, beat in nodes.items()
        if beat - (server or local) > CLOCK_SKEW
    }
    for name, lead in ahead.items():
        seconds = int(lead.total_seconds())
        doubts.append(findings.broken(f"the clock of node {name} is {seconds} s ahead", sync))
    yield from doubts
    if not doubts:
        asked = "" if server is not None else " (the API server's is not known)"
        yield findings.fine(f"the clocks agree{asked}")
