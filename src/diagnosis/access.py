"""Checks of what the charm itself stands on: its rights, its Lease, the clocks."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping
from typing import Any

import cluster

from . import finding

MODEL, APPLICATION = "kubeflow", "istio-integrator"
"""The names for which the shipped roles are written."""
CLOCK_SKEW = datetime.timedelta(seconds=30)
"""Between two clocks: certificates and Leases stand that much."""
LATE = 3
"""Lengths of a Lease without a renewal: then nobody holds it."""
ROLES = "rbac/roles.yaml"


OPTIONAL = {
    "-exec": "commands in pods",
    "-replace": "deleting broken pods",
    "-gateway": "a gateway of our own",
    "-claims": "claims on profile namespaces",
    "-diagnose": "logs, validating webhooks and ServiceEntries",
}
"""The ends of the names of roles that may be left out, and what goes without."""


@dataclasses.dataclass(frozen=True, order=True)
class Need:
    """One right."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    """Where; empty: everywhere."""
    name: str = ""
    role: str = ""
    """Which of the shipped roles gives it."""

    @property
    def text(self) -> str:
        """How people name it."""
        group = f".{self.group}" if self.group else ""
        return f"{self.verb} {self.resource}{group}"

    def review(self) -> cluster.Object:
        """Write the question whether we have it."""
        resource, _, sub = self.resource.partition("/")
        attributes = {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": sub,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": attributes},
        }


EVERYTHING = Need("*", "*", "*")
"""What --trust gives."""


def is_for_ingress(need: Need) -> bool:
    """Tell whether a right is used only where an application is related to ingress."""
    written = need.group == "security.istio.io" and need.verb not in ("get", "list", "watch")
    return need.role.endswith("-mesh") and (
        need.group == "networking.istio.io"
        or (need.group, need.resource) in (("apps", "daemonsets"), ("", "services"))
        or written
    )


def needs(roles: Iterable[cluster.Object], *, model: str, application: str) -> list[Need]:
    """List the rights that the shipped roles give, for a model and an application.

    Args:
        roles: The documents of rbac/roles.yaml.
        model: Ours.
        application: Ours.
    """
    found: dict[Need, None] = {}
    for role in roles:
        if role["kind"] not in ("Role", "ClusterRole"):
            continue
        name = _renamed(role["metadata"]["name"], model, application)
        namespace = model if role["kind"] == "Role" else ""
        for rule in cluster.items(role, "rules"):
            for need in _of_rule(rule, name, namespace, model, application):
                found[need] = None
    return list(found)


def _of_rule(
    rule: Mapping[str, Any], role: str, namespace: str, model: str, application: str
) -> Iterable[Need]:
    names = [_renamed(each, model, application) for each in rule.get("resourceNames", ())]
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in names or ("",):
                    yield Need(verb, group, resource, namespace, name, role)


def _renamed(text: str, model: str, application: str) -> str:
    """Do what the instructions at the head of the roles do with sed."""
    return text.replace(APPLICATION, "\0").replace(MODEL, model).replace("\0", application)


def rights(
    answers: Mapping[Need, bool],
    *,
    optional: Mapping[str, str],
    application: str,
) -> Iterable[finding.Finding]:
    """Judge which rights are missing.

    Args:
        answers: What the API server said about each.
        optional: The ends of the names of roles that may be left out, with what goes without.
        application: Ours.
    """
    missing: dict[str, list[Need]] = {}
    for need, allowed in answers.items():
        if not allowed:
            missing.setdefault(need.role, []).append(need)
    without: list[str] = []
    lacking: list[finding.Finding] = []
    for role, lacked in missing.items():
        words = next((said for end, said in optional.items() if role.endswith(end)), "")
        if words:
            without.append(words)
            continue
        what = finding.listed(need.text for need in lacked)
        lacking.append(
            finding.broken(
                f"{application} may not {what}",
                f"juju trust {application} --scope=cluster, or kubectl apply -f {ROLES}",
            )
        )
    yield from lacking
    if not lacking:
        left = f"; left out: {', '.join(without)}" if without else ""
        yield finding.fine(f"all rights that the charm needs are given{left}")


def lease(
    found: cluster.Object | None, *, now: datetime.datetime, application: str
) -> Iterable[finding.Finding]:
    """Judge whether a unit acts: the holder of the Lease.

    Args:
        found: The Lease.
        now: The time, with its zone.
        application: Ours.
    """
    look = f"juju status {application} && juju ssh --container lifecycle {application}/leader "
    look += "/charm/bin/pebble services"
    spec = cluster.at(found, "spec")
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if found is None:
        yield finding.broken("no unit ever stopped a proxy: there is no Lease", look)
    elif not holder or not renewed:
        yield finding.doubtful("no unit holds the Lease just now", look)
    else:
        age = now - datetime.datetime.fromisoformat(renewed)
        length = datetime.timedelta(seconds=int(spec.get("leaseDurationSeconds") or 15))
        if age > LATE * length:
            seconds = int(age.total_seconds())
            seen = f"{holder} holds the Lease and has not renewed it for {seconds} s"
            yield finding.broken(seen, look)
        else:
            yield finding.fine(f"{holder} acts")


def clock(
    *,
    local: datetime.datetime,
    server: datetime.datetime | None,
    nodes: Mapping[str, datetime.datetime],
) -> Iterable[finding.Finding]:
    """Judge whether the clocks agree.

    Args:
        local: Of our own node.
        server: Of the API server at the same moment; None where it can't be asked.
        nodes: The last heartbeat of each node, by that node's own clock.
    """
    sync = "timedatectl status"
    doubts: list[finding.Finding] = []
    if server is not None and abs(server - local) > CLOCK_SKEW:
        seconds = int((local - server).total_seconds())
        doubts.append(
            finding.broken(f"our node's clock is {seconds:+d} s from the API server's", sync)
        )
    ahead = {
        name: beat - (server or local)
        for name, beat in nodes.items()
        if beat - (server or local) > CLOCK_SKEW
    }
    for name, lead in ahead.items():
        seconds = int(lead.total_seconds())
        doubts.append(finding.broken(f"the clock of node {name} is {seconds} s ahead", sync))
    yield from doubts
    if not doubts:
        asked = "" if server is not None else " (the API server's is not known)"
        yield finding.fine(f"the clocks agree{asked}")
