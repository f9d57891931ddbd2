"""The rules of each workload of the model, as they come together; pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from integrator_contract import names
from istio_integrator.istio.authorization_policy import principal
from istio_integrator.relations import kubeflow, service_mesh
from istio_integrator.security.called import Selector, Service, selector
from istio_integrator.security.policies_workloads import Model

Rule = dict[str, Any]
"""A rule as an AuthorizationPolicy has it."""
_UNKNOWN = "waiting for the name of a caller of another model: relate it to provide-cmr-mesh, too"
_NOT_ITS_OWN = "has a policy for what is not its own"
MOST_WORKLOADS = 16
"""Workloads of which one application may speak by labels; each is a policy, with the rules of all
that are wider. Those of Kubeflow's charms have one."""
_TOO_MANY = f"speaks of more than {MOST_WORKLOADS} workloads by labels: the rest is refused"


def rule(operations: Sequence[Rule], **source: list[str]) -> Rule:
    """Write a rule; without a source it takes everybody, without operations everything."""
    return {
        **({"from": [{"source": source}]} if source else {}),
        **({"to": [{"operation": each} for each in operations]} if operations else {}),
    }


def at(ports: Iterable[int]) -> Rule:
    """Write an operation at ports of pods."""
    return {"ports": [str(port) for port in ports]}


@dataclasses.dataclass
class Callers:
    """Who may call a workload."""

    named: dict[str, set[str]] = dataclasses.field(default_factory=dict[str, set[str]])
    """Principals, by the operations that they may do, as JSON."""
    others: dict[str, Rule] = dataclasses.field(default_factory=dict[str, Rule])
    """Rules that name no principal alone, by themselves as JSON."""

    def add(self, rule: Rule) -> None:
        """Let those in whom a rule takes."""
        self.others[json.dumps(rule, sort_keys=True)] = rule

    def name(self, operations: Sequence[Rule], principals: Iterable[str]) -> None:
        """Let those in who have a certificate with one of these names."""
        self.named.setdefault(json.dumps(operations, sort_keys=True), set()).update(principals)

    def join(self, more: Callers) -> None:
        """Let in whom others let in, too."""
        self.others |= more.others
        for operations, principals in more.named.items():
            self.named.setdefault(operations, set()).update(principals)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in an order of their own."""
        if json.dumps({}) in self.others:
            return ({},)
        named = [
            rule(json.loads(operations), principals=sorted(principals))
            for operations, principals in sorted(self.named.items())
            if principals
        ]
        return (*named, *(each for _, each in sorted(self.others.items())))


class Book:
    """The workloads that only those may call who are named."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._callers: dict[Selector, Callers] = {}
        self._units: dict[str, set[Selector]] = {}
        """Labels of units that each relation speaks of."""
        self.problems: list[str] = []
        """What of relations is refused."""
        self.waiting: list[str] = []

    def entries(self) -> Iterator[tuple[Selector, tuple[Rule, ...]]]:
        """List the rules of each, the more exact selector first.

        What holds for all pods of a workload holds for some of them, too: so no pod is for a
        moment without a part of its rules.
        """
        choosing = {key: frozenset(key) for key in self._callers}
        for key in sorted(self._callers, key=lambda key: (-len(key), key)):
            whole = Callers()
            for other, callers in self._callers.items():
                if choosing[other] <= choosing[key]:
                    whole.join(callers)
            yield key, whole.rules

    def cover(self, key: Selector) -> Callers:
        """Have a workload be called by those only who are named.

        Without labels it would be every workload, so that is none.
        """
        return self._callers.setdefault(key, Callers()) if key else Callers()

    def covering(self, key: Selector) -> list[Callers]:
        """List who may call the workloads whose pods a selector means, too."""
        return [self._callers[each] for each in self._model.sharing(key, self._callers)]

    def extend(self, key: Selector, more: Rule) -> None:
        """Let those in whom a rule takes wherever only those may call who are named."""
        for callers in self.covering(key):
            callers.add(more)

    def state(self, one: service_mesh.Received) -> None:
        """Take what an application says; what is refused of it changes nothing."""
        for policy in one.policies:
            who = principal(policy.source_namespace, policy.source_app_name)
            if kubeflow.is_of_another_model(policy.source_app_name):
                self.waiting.append(f"{one.reference}: {_UNKNOWN}")
            if policy.target_type == "unit":
                self._state_unit(one, policy, who)
            else:
                self._state_application(one, policy, who)

    def _state_unit(
        self, one: service_mesh.Received, policy: service_mesh.MeshPolicy, who: str
    ) -> None:
        labels = policy.target_selector_labels or {}
        if policy.target_app_name:
            labels = {names.NAME: policy.target_app_name}
        if one.application not in (labels.get(names.NAME), labels.get(names.CREATED_BY)):
            self.problems.append(f"{one.reference}: {_NOT_ITS_OWN}")
            return
        ports = _union(endpoint.ports for endpoint in policy.endpoints)
        key = selector(labels)
        self._units.setdefault(one.reference, set()).add(key)
        if len(self._units[one.reference]) > MOST_WORKLOADS:
            self.problems.append(f"{one.reference}: {_TOO_MANY}")
        else:
            self.cover(key).name([at(ports)] if ports else [], [who])

    def _state_application(
        self, one: service_mesh.Received, policy: service_mesh.MeshPolicy, who: str
    ) -> None:
        name = policy.target_service or policy.target_app_name or ""
        found = self._model.service(name)
        if policy.target_app_name not in (None, one.application):
            self.problems.append(f"{one.reference}: {_NOT_ITS_OWN}: {policy.target_app_name}")
        elif found is None:
            self.waiting.append(f"{one.reference}: waiting for Service {name}")
        elif not self._model.is_of(found, one.application):
            self.problems.append(f"{one.reference}: {_NOT_ITS_OWN}: Service {name}")
        else:
            callers = self.cover(found.selector)
            if operations := list(self._operations(one, policy, found)):
                callers.name(operations, [who])

    def _operations(
        self, one: service_mesh.Received, policy: service_mesh.MeshPolicy, found: Service
    ) -> Iterator[Rule]:
        """Say what of a Service may be called in terms of the pods behind it."""
        for endpoint in policy.endpoints or (service_mesh.Endpoint(),):
            ports, unknown = self._model.pod_ports(found, endpoint.ports or ())
            if unknown:
                self.waiting.append(f"{one.reference}: {unknown}")
            if ports:
                named = ("hosts", "methods", "paths")
                more = {key: list(value) for key in named if (value := getattr(endpoint, key))}
                yield {**at(ports), **more}


def _union(ports: Iterable[Sequence[int] | None]) -> list[int]:
    """Join the ports of endpoints; one without, or none at all, is no restriction."""
    listed = list(ports)
    if not all(listed):
        return []
    return sorted({port for each in listed for port in each or ()})
