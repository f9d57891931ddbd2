"""Which pods are not complete though their work is done?"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Mapping

from integrator_contract import names
from integrator_contract.answers import Action, ProxyAnswer
from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, fences
from istio_integrator.lifecycle import removal_notice
from istio_integrator.membership import claims

GRACE = datetime.timedelta(seconds=30)
"""After a payload's end: by then its proxy has long been stopped."""

_COLLECTOR = "metrics-logger-and-collector"
"""Of Katib's trials; unless told `-w false` it waits for every process of its pod."""


@registry.check(
    "finished pods",
    place=70,
    question="which pods are not complete 30 s after their payload, and what the rules say; which "
    "of [Katib's collectors](../how-to/kubeflow-kinds.md#katib) and proxies wait for each other",
    reads="the workload's own rules, pods that run to completion",
    symptoms=("12-notready",),
)
def finished_pods(facts: Facts) -> Iterable[Finding]:
    """Look at what should have completed, and ask the workload what its rules say about it."""
    pods = candidates(facts)
    ended: list[cluster.Object] = []
    for pod in pods:
        with fences.around(cluster.reference(pod)):
            if _may_have_ended(pod):
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
    return removal_notice.candidates(facts.cluster, claims.served(facts.context))


def _may_have_ended(pod: cluster.Object) -> bool:
    """Tell whether the workload's rules need to be asked: a container ended before the proxy."""
    states = _states(pod, "containerStatuses")
    proxy = states.pop(names.PROXY, None)
    has_ended = proxy is None or "terminated" in proxy
    return not has_ended and any("terminated" in state for state in states.values())


def judge(
    answers: Iterable[ProxyAnswer], *, now: datetime.datetime, application: str, is_stopping: bool
) -> Iterable[Finding]:
    """Judge the pods that are not complete though their payload has ended.

    Args:
        answers: What the workload's rules say about pods.
        now: The time, with its zone.
        application: Ours.
        is_stopping: The option `proxy-shutdown`.
    """
    count = 0
    for answer in answers:
        namespace, name = answer.namespace, answer.name
        with fences.around(f"Pod {namespace}/{name}"):
            ended = answer.ended
            if not ended or (age := now - datetime.datetime.fromisoformat(ended)) < GRACE:
                continue
            count += 1
            seconds = int(age.total_seconds())
            seen = (
                f"{namespace}/{name} is not complete {seconds} s "
                f"after its payload: {answer.message} ({answer.decision})"
            )
            if answer.decision is not Action.STOP:
                yield findings.doubtful(seen, f"kubectl -n {namespace} describe pod {name}")
            elif is_stopping:
                pod_of = f"pod={name} namespace={namespace}"
                yield findings.broken(seen, f"juju run {application}/leader stop-proxy {pod_of}")
            else:
                yield findings.broken(seen, f"juju config {application} proxy-shutdown=true")
    if not count:
        yield findings.fine("no proxy outlives its payload")


def judge_collectors(
    pods: Iterable[cluster.Object], *, now: datetime.datetime
) -> Iterable[Finding]:
    """Judge the trials whose collector waits for the proxy that waits for it."""
    for pod in pods:
        with fences.around(cluster.reference(pod)):
            since = collector_waits_since(pod)
            if since is None or now - since < GRACE:
                continue
            metadata = pod["metadata"]
            yield findings.broken(
                f"{metadata['namespace']}/{metadata['name']}: {_COLLECTOR} waits for every "
                "process, so for the proxy, which waits for it, "
                f"{int((now - since).total_seconds())} s after the training: tell Katib "
                "waitAllProcesses: false",
                "kubectl get configmap --all-namespaces --field-selector "
                "metadata.name=katib-config",
            )


def collector_waits_since(pod: cluster.Object) -> datetime.datetime | None:
    """Tell since when Katib's collector and the proxy, of either kind, wait for each other.

    The rule is Katib's `waitAllProcesses`: its collector looks at all processes of the pod, which
    are one namespace. None where they don't wait.
    """
    for each in cluster.parts(cluster.at(pod, "spec"), "containers"):
        arguments = cluster.items(each, "args") if each.get("name") == _COLLECTOR else []
        if ("-w", "false") in itertools.pairwise(arguments):
            return None
    states = _states(pod, "containerStatuses")
    proxies = {**_states(pod, "initContainerStatuses"), **states}
    waiting = (states.pop(_COLLECTOR, {}), proxies.get(names.PROXY, {}))
    states.pop(names.PROXY, None)
    return _last_end(states) if all("running" in each for each in waiting) else None


def _states(pod: cluster.Object, key: str) -> dict[str, cluster.Object]:
    found = cluster.parts(cluster.at(pod, "status"), key)
    return {str(each["name"]): cluster.at(each, "state") for each in found}


def _last_end(states: Mapping[str, cluster.Object]) -> datetime.datetime | None:
    ends: list[datetime.datetime] = []
    for state in states.values():
        ended = cluster.at(state, "terminated").get("finishedAt")
        if ended is None:
            return None
        ends.append(datetime.datetime.fromisoformat(ended))
    return max(ends, default=None)
