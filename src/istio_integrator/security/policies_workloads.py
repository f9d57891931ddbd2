"""The model's Services and pods, as far as policies for sidecars are made of them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from integrator_contract import names
from istio_integrator.istio import proxies
from istio_integrator.kube import cluster
from istio_integrator.security import called
from istio_integrator.security.called import NamedPorts, Probe, Selector, Service, selector

_PATTERNS = "*{}"
"""Signs that a path of a policy can't have without meaning others, too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod, or what a workload makes its next one of."""

    labels: Mapping[str, str]
    ports: NamedPorts = frozenset()
    has_proxy: bool = False
    is_router: bool = False
    """Whether its proxy leads to other pods."""
    probes: tuple[Probe, ...] = ()

    @classmethod
    def of(cls, obj: cluster.Object, *, is_template: bool = False) -> Pod:
        """Read what matters of a pod, or of a workload's template."""
        containers = called.containers(obj)
        templates = cluster.at(obj, "metadata", "annotations").get(names.TEMPLATES, "")
        return cls(
            labels=called.labels(obj),
            ports=called.ports(containers),
            has_proxy=not is_template and proxies.is_in_mesh(obj),
            is_router=proxies.is_router(obj) or "gateway" in str(templates).split(","),
            probes=tuple(
                probe
                for probe in called.probes(containers)
                if not any(sign in probe.path for sign in _PATTERNS)
            ),
        )

    @property
    def stable(self) -> Selector:
        """The labels that every pod of its workload has."""
        kept = {key: value for key, value in self.labels.items() if key not in names.OF_ONE_POD}
        return selector(kept)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """What there is in the model."""

    name: str
    """The model's, which is its namespace's."""
    services: Sequence[Service] = ()
    pods: Sequence[Pod] = ()
    """With what workloads make pods of, which there may be none of for a moment."""

    def service(self, name: str) -> Service | None:
        """Find a Service that leads to pods."""
        found = (each for each in self.services if each.name == name and each.selector)
        return next(found, None)

    def pod_ports(self, service: Service, wanted: Collection[int] = ()) -> tuple[list[int], str]:
        """Find where pods listen for ports of a Service.

        Args:
            service: The Service.
            wanted: Ports of it; none: all.

        Returns:
            The pods' ports, and what is not known; empty where all is.
        """
        known = {port.number: port for port in service.ports}
        named = {port for pod in self._chosen(service.selector) for port in pod.ports}
        missing: list[int] = []
        found: set[int] = set()
        for number in wanted or known:
            numbers = known[number].at(named) if number in known else set[int]()
            if not numbers:
                missing.append(number)
            found |= numbers
        if missing or not found:
            shown = ", ".join(map(str, missing)) or "any"
            return sorted(found), f"waiting for port {shown} of Service {service.name}"
        return sorted(found), ""

    def sharing(self, key: Selector, others: Iterable[Selector]) -> Iterator[Selector]:
        """Find selectors that mean a pod which another means, too, as far as that can be told."""
        own = self._selected(key)
        for other in others:
            theirs = self._selected(other)
            if own and theirs:
                # Were one narrower than the other, its pods would be the other's, too.
                is_shared = bool(own & theirs)
            else:
                is_shared = set(key) <= set(other) or set(other) <= set(key)
            if is_shared:
                yield other

    def is_of(self, service: Service, application: str) -> bool:
        """Tell whether a Service is an application's, and leads to no pod of another one."""
        known = (None, application)
        return service.is_of(application) and all(
            pod.labels.get(names.NAME) in known or pod.labels.get(names.CREATED_BY) in known[1:]
            for pod in self._chosen(service.selector)
        )

    def _chosen(self, by: Selector) -> list[Pod]:
        selected = self._selected(by)
        return [pod for number, pod in enumerate(self.pods) if selected >> number & 1]

    def _selected(self, by: Selector) -> int:
        """Return the pods that a selector means, a bit for each."""
        selected = -1 if by else 0
        for pair in by:
            selected &= self._by_label.get(pair, 0)
        return selected

    @functools.cached_property
    def _by_label(self) -> Mapping[tuple[str, str], int]:
        """The pods that have a label, a bit for each: it is asked for with every pair of them."""
        found: dict[tuple[str, str], int] = {}
        for number, pod in enumerate(self.pods):
            for pair in pod.labels.items():
                found[pair] = found.get(pair, 0) | 1 << number
        return found
