"""Figures about convergence."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Mapping

import prometheus_client

from sidecar_lifecycle.decide import mutate
from sidecar_lifecycle.shell import metrics

RESULTS = ("evicted", "budget", "forbidden", "refused", "error", "gone", "replaced", "unknown")
"""Of an eviction; each counts from zero, or the first of its kind would not show as a rise."""

LONGEST = 256
"""Characters of the annotation that says what was changed at a pod's creation: all our words."""


class Metrics:
    """What `/metrics` says about pods without a sidecar."""

    def __init__(self, registry: prometheus_client.CollectorRegistry) -> None:
        gauge = functools.partial(
            prometheus_client.Gauge, namespace=metrics.PREFIX, registry=registry
        )
        self._uninjected = gauge(
            "uninjected_pods",
            "Pods of the model without the sidecar that they should have.",
            ["reason"],
        )
        self._in_mesh = gauge("in_mesh_pods", "Pods of the model with a sidecar.")
        self._applied = gauge(
            "applied_pods",
            "Pods of the model by what was changed at their creation, each once per change.",
            ["change"],
        )
        self._rounds = gauge(
            "convergence_workloads_in_flight", "Workloads of which a pod is being replaced."
        )
        self._evictions = prometheus_client.Counter(
            f"{metrics.PREFIX}_evictions",
            "Evictions of pods without a sidecar.",
            ["result"],
            registry=registry,
        )
        for result in RESULTS:
            self._evictions.labels(result)

    def show(self, reasons: Mapping[str, int], in_mesh: int, rounds: int) -> None:
        """Publish the counts of a plan."""
        self._uninjected.clear()
        for reason, count in reasons.items():
            self._uninjected.labels(reason).set(count)
        self._in_mesh.set(in_mesh)
        self._rounds.set(rounds)

    def show_applied(self, annotations: Iterable[str]) -> None:
        """Publish what was changed at the creation of pods, by their annotations of that name."""
        self._applied.clear()
        # Anybody who makes a pod can write the annotation: only our own words become labels.
        counts = collections.Counter(
            change
            for value in annotations
            if len(value) <= LONGEST
            for change in value.split(",")
            if change in mutate.CHANGES
        )
        for change, count in counts.items():
            self._applied.labels(change).set(count)

    def evicted(self, result: str) -> None:
        """Count an eviction by how it went."""
        self._evictions.labels(result).inc()
