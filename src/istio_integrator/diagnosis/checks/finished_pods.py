"""Which pods are not complete though their work is done?"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Iterable

from integrator_contract import names
from integrator_contract.answers import Action, ProxyAnswer
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.kube import cluster, fences
from istio_integrator.lifecycle import removal_notice
from istio_integrator.messages import Message, Said, Severity

_GRACE = 30
"""Seconds after a payload's end by which its proxy should have been stopped."""
_COLLECTOR = "metrics-logger-and-collector"
"""Of Katib's trials; unless told `-w false` it waits for every process of its pod."""


@registry.check("finished pods", place=70, symptoms=("12-notready",))
def finished_pods(facts: Facts) -> Iterable[Message]:
    """Name pods not complete 30 s after their payload, and collectors of Katib that wait."""
    pods = removal_notice.candidates(facts.cluster, facts.context.served_namespaces)
    ended: list[cluster.Object] = []
    for pod in pods:
        with fences.around(cluster.reference(pod)):
            states = _states(pod, "containerStatuses")
            runs = "terminated" not in states.pop(names.PROXY, {"terminated": {}})
            if runs and any("terminated" in state for state in states.values()):
                ended.append(pod)
    yield from judge_collectors(pods, now=facts.now())
    yield from judge(
        facts.workload.explain(ended) if ended else (),
        now=facts.now(),
        application=facts.application,
        is_stopping=facts.config.proxy_shutdown,
    )


def judge(
    answers: Iterable[ProxyAnswer], *, now: datetime.datetime, application: str, is_stopping: bool
) -> Iterable[Message]:
    """Judge the pods that are not complete though their payload has ended."""
    late: list[Message] = []
    for answer in answers:
        namespace, name = answer.namespace, answer.name
        with fences.around(f"Pod {namespace}/{name}"):
            if not answer.ended or (age := _seconds(answer.ended, now)) < _GRACE:
                continue
            severity, command = Severity.BLOCKED, f"juju config {application} proxy-shutdown=true"
            if answer.decision is not Action.STOP:
                severity, command = Severity.DOUBT, f"kubectl -n {namespace} describe pod {name}"
            elif is_stopping:
                pod_of = f"pod={name} namespace={namespace}"
                command = f"juju run {application}/leader stop-proxy {pod_of}"
            reason = f"{answer.message} ({answer.decision})"
            said = Said.POD_NOT_COMPLETE(
                pod=f"{namespace}/{name}", age=age, reason=reason, command=command
            )
            late.append(dataclasses.replace(said, severity=severity))
    yield from late or [Said.NO_PROXY_OUTLIVES()]


def judge_collectors(
    pods: Iterable[cluster.Object], *, now: datetime.datetime
) -> Iterable[Message]:
    """Judge the trials whose collector waits for the proxy that waits for it.

    The rule is Katib's `waitAllProcesses`: its collector looks at all processes of the pod, which
    are one namespace.
    """
    for pod in pods:
        with fences.around(cluster.reference(pod)):
            ended = _waits_since(pod)
            if ended and (age := _seconds(ended, now)) >= _GRACE:
                metadata = pod["metadata"]
                yield Said.COLLECTOR_WAITS(
                    pod=f"{metadata['namespace']}/{metadata['name']}", age=age
                )


def _waits_since(pod: cluster.Object) -> str:
    """Tell when the training ended after which collector and proxy wait; empty if they don't."""
    for each in cluster.parts(cluster.at(pod, "spec"), "containers"):
        told = ("-w", "false") in itertools.pairwise(cluster.items(each, "args"))
        if each.get("name") == _COLLECTOR and told:
            return ""
    states = _states(pod, "initContainerStatuses") | _states(pod, "containerStatuses")
    waiting = (states.pop(_COLLECTOR, {}), states.pop(names.PROXY, {}))
    payload = [states[name] for name in _states(pod, "containerStatuses") if name in states]
    ends = [str(cluster.at(each, "terminated").get("finishedAt") or "") for each in payload]
    is_over = all("running" in each for each in waiting) and all(ends)
    return max(ends, default="") if is_over else ""


def _states(pod: cluster.Object, key: str) -> dict[str, cluster.Object]:
    found = cluster.parts(cluster.at(pod, "status"), key)
    return {str(each["name"]): cluster.at(each, "state") for each in found}


def _seconds(since: str, now: datetime.datetime) -> int:
    return int((now - datetime.datetime.fromisoformat(since)).total_seconds())
