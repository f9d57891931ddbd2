"""Which pods are not complete though their work is done?"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable

from integrator_contract import names
from integrator_contract.answers import Action, ProxyAnswer
from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, fences
from istio_integrator.lifecycle import removal_notice

_GRACE = 30
"""Seconds after a payload's end by which its proxy should have been stopped."""
_COLLECTOR = "metrics-logger-and-collector"
"""Of Katib's trials; unless told `-w false` it waits for every process of its pod."""


@registry.check("finished pods", place=70, symptoms=("12-notready",))
def finished_pods(facts: Facts) -> Iterable[Finding]:
    """Name pods not complete 30 s after their payload, and collectors of Katib that wait."""
    pods = candidates(facts)
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


def candidates(facts: Facts) -> list[cluster.Object]:
    """List injected pods that run to completion, wherever proxies are stopped."""
    return removal_notice.candidates(facts.cluster, facts.context.served_namespaces)


def judge(
    answers: Iterable[ProxyAnswer], *, now: datetime.datetime, application: str, is_stopping: bool
) -> Iterable[Finding]:
    """Judge the pods that are not complete though their payload has ended."""
    is_fine = True
    for answer in answers:
        namespace, name = answer.namespace, answer.name
        with fences.around(f"Pod {namespace}/{name}"):
            if not answer.ended or (age := _seconds(answer.ended, now)) < _GRACE:
                continue
            is_fine = False
            seen = (
                f"{namespace}/{name} is not complete {age} s "
                f"after its payload: {answer.message} ({answer.decision})"
            )
            if answer.decision is not Action.STOP:
                yield findings.doubtful(seen, f"kubectl -n {namespace} describe pod {name}")
            elif is_stopping:
                pod_of = f"pod={name} namespace={namespace}"
                yield findings.broken(seen, f"juju run {application}/leader stop-proxy {pod_of}")
            else:
                yield findings.broken(seen, f"juju config {application} proxy-shutdown=true")
    if is_fine:
        yield findings.fine("no proxy outlives its payload")


def judge_collectors(
    pods: Iterable[cluster.Object], *, now: datetime.datetime
) -> Iterable[Finding]:
    """Judge the trials whose collector waits for the proxy that waits for it.

    The rule is Katib's `waitAllProcesses`: its collector looks at all processes of the pod, which
    are one namespace.
    """
    for pod in pods:
        with fences.around(cluster.reference(pod)):
            ended = _waits_since(pod)
            if ended and (age := _seconds(ended, now)) >= _GRACE:
                metadata = pod["metadata"]
                yield findings.broken(
                    f"{metadata['namespace']}/{metadata['name']}: {_COLLECTOR} waits for every "
                    f"process, so for the proxy, which waits for it, {age} s after the training: "
                    "tell Katib waitAllProcesses: false",
                    "kubectl get configmap --all-namespaces --field-selector "
                    "metadata.name=katib-config",
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
