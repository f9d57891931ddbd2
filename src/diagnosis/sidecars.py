"""Checks of the model's pods: who lacks a sidecar, whose is old, whose runs on for nothing."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import cluster
import lifecycle
import probe

from . import finding

GRACE = datetime.timedelta(seconds=30)
"""After a payload's end: by then its proxy has long been stopped."""

_COLLECTOR = "metrics-logger-and-collector"
"""Of Katib's trials; unless told `-w false` it waits for every process of its pod."""

Line = Mapping[str, Any]
"""One of the workload's answers about a pod."""


def uninjected(answer: lifecycle.Answer, *, application: str) -> Iterable[finding.Finding]:
    """Judge the pods that lack the sidecar that they should have, by what keeps it from them."""
    look = f"juju run {application}/leader list-uninjected"
    said = finding.of_statuses(lifecycle.progress(answer.summary, application=application), look)
    unmet = [each for each in said if each.level is not finding.Level.FINE]
    yield from unmet
    for message, pods in _by_message(answer.pods).items():
        yield finding.doubtful(f"no sidecar: {finding.listed(pods)}: {message}", look)
    if not unmet and not answer.pods:
        summary = answer.summary
        yield finding.fine(f"{summary.in_mesh}/{summary.eligible} pods in mesh")


def stale(rows: Sequence[Line], *, application: str) -> Iterable[finding.Finding]:
    """Judge the proxies that are of another revision or version than new pods get."""
    for message, pods in _by_message(rows).items():
        yield finding.doubtful(
            f"old proxy: {finding.listed(pods)}: {message}",
            f"juju run {application}/leader restart-stale",
        )
    if not rows:
        yield finding.fine("every proxy is of istiod's revision and version")


def _by_message(rows: Iterable[Line]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["message"], []).append(f"{row['namespace']}/{row['name']}")
    return found


def payload_end(pod: cluster.Object) -> datetime.datetime | None:
    """Tell when the last container beside a running classic proxy ended; None where one runs."""
    states = _states(pod, "containerStatuses")
    proxy = states.pop(probe.PROXY, {})
    return _last_end(states) if "running" in proxy else None


def collector_waits_since(pod: cluster.Object) -> datetime.datetime | None:
    """Tell since when Katib's collector and the proxy, of either kind, wait for each other.

    The rule is Katib's `waitAllProcesses`: its collector looks at all processes of the pod, which
    are one namespace. None where they don't wait.
    """
    for each in cluster.items(cluster.at(pod, "spec"), "containers"):
        arguments = cluster.items(each, "args") if each["name"] == _COLLECTOR else []
        if ("-w", "false") in itertools.pairwise(arguments):
            return None
    states = _states(pod, "containerStatuses")
    proxies = {**_states(pod, "initContainerStatuses"), **states}
    waiting = (states.pop(_COLLECTOR, {}), proxies.get(probe.PROXY, {}))
    states.pop(probe.PROXY, None)
    return _last_end(states) if all("running" in each for each in waiting) else None


def _states(pod: cluster.Object, key: str) -> dict[str, cluster.Object]:
    found = cluster.items(cluster.at(pod, "status"), key)
    return {each["name"]: cluster.at(each, "state") for each in found}


def _last_end(states: Mapping[str, cluster.Object]) -> datetime.datetime | None:
    ends: list[datetime.datetime] = []
    for state in states.values():
        ended = cluster.at(state, "terminated").get("finishedAt")
        if ended is None:
            return None
        ends.append(datetime.datetime.fromisoformat(ended))
    return max(ends, default=None)


def collected(
    pods: Iterable[cluster.Object], *, now: datetime.datetime
) -> Iterable[finding.Finding]:
    """Judge the trials whose collector waits for the proxy that waits for it."""
    for pod in pods:
        since = collector_waits_since(pod)
        if since is None or now - since < GRACE:
            continue
        metadata = pod["metadata"]
        yield finding.broken(
            f"{metadata['namespace']}/{metadata['name']}: {_COLLECTOR} waits for every process, "
            f"so for the proxy, which waits for it, {int((now - since).total_seconds())} s after "
            "the training: tell Katib waitAllProcesses: false",
            "kubectl get configmap --all-namespaces --field-selector metadata.name=katib-config",
        )


def lingering(
    pods: Iterable[cluster.Object],
    lines: Iterable[Line],
    *,
    now: datetime.datetime,
    application: str,
    is_stopping: bool,
) -> Iterable[finding.Finding]:
    """Judge the proxies that run though their payload has ended.

    Args:
        pods: Candidates.
        lines: What the workload's rules say about each.
        now: The time, with its zone.
        application: Ours.
        is_stopping: The option `proxy-shutdown`.
    """
    said = {(line["namespace"], line["name"]): line for line in lines}
    count = 0
    for pod in pods:
        ended = payload_end(pod)
        metadata = pod["metadata"]
        line = said.get((metadata["namespace"], metadata["name"]))
        if ended is None or line is None or now - ended < GRACE:
            continue
        count += 1
        seconds = int((now - ended).total_seconds())
        seen = (
            f"{metadata['namespace']}/{metadata['name']}: its proxy still runs {seconds} s after "
            f"its payload: {line['message']} ({line['decision']})"
        )
        events = f"kubectl -n {metadata['namespace']} describe pod {metadata['name']}"
        if line["decision"] != "stop":
            yield finding.doubtful(seen, events)
        elif is_stopping:
            pod_of = f"pod={metadata['name']} namespace={metadata['namespace']}"
            yield finding.broken(seen, f"juju run {application}/leader stop-proxy {pod_of}")
        else:
            yield finding.broken(seen, f"juju config {application} proxy-shutdown=true")
    if not count:
        yield finding.fine("no proxy outlives its payload")
