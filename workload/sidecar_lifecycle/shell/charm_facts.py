"""The metrics about what the charm knows, read from its file whenever somebody asks."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
import structlog
from prometheus_client import core, registry

from integrator_contract import charm_facts

log = structlog.get_logger(__name__)

_PREFIX = "istio_integrator"


class Collector(registry.Collector):
    """Shows what the charm's last hook on this unit found.

    Args:
        path: Of the charm's file; while it is not there, nothing is shown.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def describe(self) -> Iterable[core.Metric]:
        """Name the metrics without reading the file."""
        return _families(0.0, charm_facts.CharmFacts())

    def collect(self) -> Iterable[core.Metric]:
        """Read the file and show it; one that can't be read is logged and shows nothing."""
        found = read(self._path)
        return _families(*found) if found else ()


def read(path: Path) -> tuple[float, charm_facts.CharmFacts] | None:
    """Read when the charm wrote its file, and what; None where there is none to be read."""
    try:
        with path.open("rb") as file:
            written = os.fstat(file.fileno()).st_mtime
            content = file.read(charm_facts.LONGEST)
        # What is longer is cut off in the middle, and so is no JSON.
        return written, msgspec.json.decode(content, type=charm_facts.CharmFacts)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        log.warning("the charm's facts can't be read", error=str(error)[:200])
        return None


def _families(written: float, known: charm_facts.CharmFacts) -> list[core.Metric]:
    looked = _gauge(
        "last_look_timestamp_seconds",
        "When the charm last looked on this unit, in Unix time; what it knows is as old.",
    )
    looked.add_metric((), written)
    problems = _gauge(
        "problems",
        "Things that are not as they should be, by the part of the charm that says so and Juju's"
        " word for how bad it is. The unit's status says them in words.",
        "part",
        "severity",
    )
    counts = collections.Counter((each.part, each.severity) for each in known.problems)
    for part, severity in sorted(counts):
        problems.add_metric((part, severity), counts[part, severity])
    ready = _gauge(
        "gateway_ready",
        "1 where the gateway that serves the model is there and open, 0 where not; of the leader,"
        " where the model has an ingress.",
    )
    if known.gateway_ready is not None:
        ready.add_metric((), known.gateway_ready)
    guard = _gauge(
        "guard",
        "1 for what stands before the model's routes: asks (somebody is asked about each request),"
        " closed (nobody is there to be asked, so no request passes) or none (all pass unasked);"
        " of the leader, where the model has an ingress.",
        "state",
    )
    for state in charm_facts.GUARDS if known.guard else ():
        guard.add_metric((state,), state == known.guard)
    begins = _gauge(
        "certificate_not_before_timestamp_seconds",
        "From when the certificate of gateway or webhook is valid; of the leader.",
        "owner",
    )
    ends = _gauge(
        "certificate_not_after_timestamp_seconds",
        "Until when the certificate of gateway or webhook is valid; of the leader.",
        "owner",
    )
    for each in {each.owner: each for each in known.certificates}.values():
        begins.add_metric((each.owner,), each.not_before)
        ends.add_metric((each.owner,), each.not_after)
    old = _gauge(
        "old_proxies",
        "Pods of the model whose proxy is of another revision or of an earlier istiod.",
    )
    if known.old_proxies is not None:
        old.add_metric((), known.old_proxies)
    return [looked, problems, ready, guard, begins, ends, old]


def _gauge(name: str, meaning: str, *labels: str) -> core.GaugeMetricFamily:
    return core.GaugeMetricFamily(f"{_PREFIX}_{name}", meaning, labels=labels)
