"""Which pods are not complete although their payload has ended?"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Iterable

from integrator_contract import names
from integrator_contract.answers import Action
from istio_integrator import texts
from istio_integrator.diagnosis import registry
from istio_integrator.facts import Facts
from istio_integrator.kube import cluster, fences
from istio_integrator.messages import Message, Severity, Template

_GRACE = 30
"""Seconds after a payload's end by which its proxy should have been stopped."""
_COLLECTOR = "metrics-logger-and-collector"
"""A container of Katib's trials; without `-w false` it waits for every process of its pod."""


@registry.check("finished pods", place=70, symptoms=("12-notready",))
def check_finished_pods(facts: Facts) -> Iterable[Message]:
    """Name pods not complete 30 s after their payload, and collectors of Katib that wait."""
    young: list[str] = []
    is_late = False
    for name in facts.served_namespaces:
        for pod in facts.situation.cluster.list(cluster.POD, name):
            with fences.isolate(cluster.reference(pod)):
                since = _find_end_of_training(pod)
                if since and (age := _count_seconds_since(since)) >= _GRACE:
                    is_late = True
                    yield Template.COLLECTOR_WAITS(pod=cluster.namespaced_name(pod), age=age)
                elif since:
                    young.append(cluster.namespaced_name(pod))
    for answer in facts.workload.list_ended():
        namespace, name = answer.namespace, answer.name
        with fences.isolate(f"Pod {namespace}/{name}"):
            if (age := _count_seconds_since(answer.ended)) < _GRACE:
                young.append(f"{namespace}/{name}")
                continue
            severity = Severity.BLOCKED
            command = f"juju config {facts.situation.application} proxy-shutdown=true"
            if answer.decision is not Action.STOP:
                severity, command = Severity.DOUBT, f"kubectl -n {namespace} describe pod {name}"
            elif facts.situation.config.proxy_shutdown:
                place = f"pod={name} namespace={namespace}"
                command = f"juju run {facts.situation.application}/leader stop-proxy {place}"
            said = Template.POD_NOT_COMPLETE(
                pod=f"{namespace}/{name}",
                age=age,
                reason=f"{answer.message} ({answer.decision})",
                command=command,
            )
            is_late = True
            yield dataclasses.replace(said, severity=severity)
    if young:
        yield Template.PROXIES_STILL_RUN(pods=texts.join_names(young), seconds=_GRACE)
    elif not is_late:
        yield Template.NO_PROXY_OUTLIVES()


def _find_end_of_training(pod: cluster.Object) -> str:
    """Return since when the collector and the proxy of a finished training wait for each other.

    With Katib's `waitAllProcesses`, the collector waits for all processes of the pod, whose
    containers share one process namespace.

    Returns:
        The end of the training; empty if they do not wait.
    """
    for each in cluster.parts(cluster.at(pod, "spec"), "containers"):
        told = ("-w", "false") in itertools.pairwise(cluster.items(each, "args"))
        if each.get("name") == _COLLECTOR and told:
            return ""
    states = _read_states(pod, "initContainerStatuses") | _read_states(pod, "containerStatuses")
    waiting = (states.pop(_COLLECTOR, {}), states.pop(names.PROXY, {}))
    payload = [states[name] for name in _read_states(pod, "containerStatuses") if name in states]
    ends = [str(cluster.at(each, "terminated").get("finishedAt") or "") for each in payload]
    is_over = all("running" in each for each in waiting) and all(ends)
    return max(ends, default="") if is_over else ""


def _read_states(pod: cluster.Object, key: str) -> dict[str, cluster.Object]:
    found = cluster.parts(cluster.at(pod, "status"), key)
    return {str(each["name"]): cluster.at(each, "state") for each in found}


def _count_seconds_since(since: str) -> int:
    ended = datetime.datetime.fromisoformat(since)
    return int((datetime.datetime.now(datetime.UTC) - ended).total_seconds())
