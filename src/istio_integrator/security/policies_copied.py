"""Policies of charms that name a Service as their target, which no sidecar reads; pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from istio_integrator.istio.attachment import Attachment
from istio_integrator.kube import cluster, fences
from istio_integrator.security.called import Service
from istio_integrator.security.policies_workloads import Model

MOST_RULES = 64
"""Rules of one such policy that are said again; those of Kubeflow's charms have one or two."""


def copied(
    policies: Iterable[cluster.Object], model: Model
) -> Iterator[tuple[Service, list[dict[str, Any]]]]:
    """Say again whom such policies let in, at the ports of the pods behind their Services."""
    for policy in policies:
        with fences.around(cluster.reference(policy)):
            spec = cluster.at(policy, "spec")
            if spec.get("action", "ALLOW") != "ALLOW":
                continue
            targets = Attachment.of(policy).targets
            named = [model.service(name) for kind, name in targets if kind == "Service"]
            for found in filter(None, named):
                rules = cluster.parts(spec, "rules")[:MOST_RULES]
                yield found, [each for rule in rules for each in _at_pods(rule, found, model)]


def _at_pods(rule: cluster.Object, found: Service, model: Model) -> Iterator[dict[str, Any]]:
    """Write a rule with the ports of pods; one that is about none of them is about nothing."""
    operations = [cluster.at(each, "operation") for each in cluster.parts(rule, "to")]
    said: list[dict[str, Any]] = []
    for operation in operations or [{}]:
        known = {str(port.number) for port in found.ports}
        asked = set(map(str, cluster.items(operation, "ports"))) or known
        asked -= set(map(str, cluster.items(operation, "notPorts")))
        ports = _of_pods(asked & known, found, model)
        if ports:
            more = {key: operation[key] for key in operation if key not in ("ports", "notPorts")}
            said.append({**more, "ports": ports})
    if said:
        changed = copy.deepcopy(rule)
        changed["to"] = [{"operation": each} for each in said]
        yield changed


def _of_pods(asked: set[str], found: Service, model: Model) -> list[str]:
    if not asked:
        return []
    ports, _ = model.pod_ports(found, sorted(map(int, asked)))
    return [str(port) for port in ports]
