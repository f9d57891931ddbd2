"""Rules: whether the proxy of a pod may be stopped now.

A stop that is too early takes the network from a payload. Without a stop, a Job hangs. Each rule
below is a reason for or against a stop, in the order of precedence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from integrator_contract import answers, names, service
from integrator_contract.answers import Action
from integrator_contract.reasons import Reason
from sidecar_lifecycle.model import types

from . import container_restart, payload, proxy_config

_PROXYLESS = "grpc-agent"
"""Istio's injection template whose proxy container runs pilot-agent without Envoy. There
/quitquitquit makes pilot-agent panic (pilot/cmd/pilot-agent/status/server.go calls SkipDrain of
pkg/istio-agent/agent.go, which has no Envoy agent), and a command has no administration port to
call."""


@dataclass(frozen=True, kw_only=True)
class Policy(service.Rules):
    """The configuration from outside of the pod."""

    enabled: bool = True
    namespace_enabled: bool = True
    """False if an annotation disables the pod's namespace."""
    old_ends_count: bool = False
    """Whether a container's end counts if it is older than the start of its pod."""


@dataclass(frozen=True, slots=True)
class ProxyDecision:
    """The action for a pod's proxy, and its reason."""

    action: Action
    reason: Reason
    message: str
    containers: tuple[str, ...] = ()
    """The containers whose end matters."""
    port: int = 0
    """The port for the action stop; 0: the proxy has no status port, so it is stopped by a
    command."""
    proxy_id: str = ""
    """The ID of the proxy's container, which must be unchanged when the stop is sent."""
    unknown: tuple[str, ...] = ()
    """Names in the pod's annotations that match none of its containers."""
    holding: tuple[str, ...] = ()
    """Ignored containers that have not ended: they keep the pod running after its proxy."""

    def to_answer(self, pod: types.Pod) -> answers.ProxyAnswer:
        """Return the decision in the form that the charm reads."""
        return answers.ProxyAnswer(
            namespace=pod.metadata.namespace or "",
            name=pod.metadata.name,
            decision=self.action,
            reason=self.reason,
            message=self.message,
            containers=self.containers,
            unknown=self.unknown,
            holding=self.holding,
        )


_Judgement: TypeAlias = tuple[Action, Reason, str]


def decide(pod: types.Pod, policy: Policy) -> ProxyDecision:
    """Decide about one pod, by the first reason that applies."""
    if left_alone := next(_list_objections(pod, policy), None):
        return ProxyDecision(Action.IGNORE, *left_alone)
    selection = payload.select_payload(pod, policy)
    decision = ProxyDecision(
        *next(_judge_state(pod, policy, selection)),
        containers=tuple(each.name for each in selection.containers),
        unknown=selection.unknown,
    )
    if decision.action is not Action.STOP:
        return decision
    return dataclasses.replace(
        decision,
        port=proxy_config.find_status_port(pod.metadata.annotations, policy.status_port) or 0,
        proxy_id=payload.map_statuses(pod)[names.PROXY].containerID or "",
        holding=_list_holding_containers(pod, selection, policy),
    )


def explain(pod: types.Pod, policy: Policy) -> answers.ProxyAnswer:
    """Return the decision about one pod, and when its payload ended."""
    ended = payload.find_end(pod, policy)
    return dataclasses.replace(decide(pod, policy).to_answer(pod), ended=ended)


def may_be_stopped(pod: types.Pod) -> bool:
    """Tell whether a pod's specification, which never changes, allows a stop of its proxy."""
    return next(_list_fixed_objections(pod), None) is None


def _list_fixed_objections(pod: types.Pod) -> Iterator[tuple[Reason, str]]:
    """Yield the reasons in a pod's specification, which never changes, not to stop its proxy."""
    if any(container.name == names.PROXY for container in pod.spec.initContainers):
        yield Reason.NATIVE_SIDECAR, "the kubelet stops a native sidecar by itself"
    proxy = _find_proxy(pod)
    if proxy is None:
        yield Reason.NO_PROXY, f"no container {names.PROXY}"
    elif container_restart.will_restart(proxy, pod.spec.restartPolicy, types.Terminated()):
        yield Reason.RESTARTS_ALWAYS, "the pod starts a stopped proxy again"


def _list_objections(pod: types.Pod, policy: Policy) -> Iterator[tuple[Reason, str]]:
    """Yield the reasons in this pod's specification and policy not to stop its proxy."""
    annotations = pod.metadata.annotations
    yield from _list_fixed_objections(pod)
    if not policy.enabled:
        yield Reason.SWITCHED_OFF, "proxy-shutdown is false"
    if annotations.get(names.PROXY_SHUTDOWN) == "disabled":
        yield Reason.DISABLED, f"annotation {names.PROXY_SHUTDOWN}=disabled on the pod"
    if not policy.namespace_enabled:
        message = f"{names.PROXY_SHUTDOWN}=disabled on the namespace"
        yield Reason.NAMESPACE_DISABLED, message


def _find_proxy(pod: types.Pod) -> types.Container | None:
    return next((each for each in pod.spec.containers if each.name == names.PROXY), None)


def _judge_state(
    pod: types.Pod, policy: Policy, selection: payload.Selection
) -> Iterator[_Judgement]:
    """Yield the judgements that the pod's state requires; the last one always applies."""
    if pod.metadata.deletionTimestamp is not None:
        yield Action.IGNORE, Reason.DELETED, "the pod is being deleted"
    phase = pod.status.phase
    if phase in ("Succeeded", "Failed"):
        yield Action.IGNORE, Reason.ENDED, f"the pod has {phase.lower()}"
    if selection.reason is not None:
        yield Action.REPORT, selection.reason, selection.message
    if proxy_config.find_status_port(pod.metadata.annotations, policy.status_port) is None:
        yield Action.REPORT, Reason.BAD_STATUS_PORT, f"{names.STATUS_PORT} is not a port"
    # A pod is Pending as long as one container has not started, such as a proxy whose image can't
    # be pulled, even if the other containers have ended (getPhase in
    # k8s.io/kubernetes/pkg/kubelet/kubelet_pods.go).
    if phase not in ("Running", "Pending"):
        yield Action.WAIT, Reason.NOT_RUNNING, f"the pod's phase is {phase or 'not known'}"

    unfinished = payload.list_unfinished(
        pod, selection.containers, old_ends_count=policy.old_ends_count
    )
    again = payload.find_restart(pod)
    proxy = payload.map_statuses(pod).get(names.PROXY)
    if proxy is not None and proxy.state.terminated is not None:
        yield from _judge_ended_proxy(pod, proxy.state.terminated, again, unfinished)
    if unfinished:
        yield Action.WAIT, unfinished[0].reason, payload.join_some(unfinished)
    if again is not None:
        yield Action.WAIT, again.reason, str(again)
    if missing := payload.list_without_status(pod):
        message = f"{payload.join_some(missing, ', ')} has no status yet"
        yield Action.WAIT, Reason.NO_STATUS, message
    yield from _list_obstacles(pod, proxy)
    yield Action.STOP, Reason.PAYLOAD_FINISHED, payload.describe_ends(pod, selection.containers)


def _judge_ended_proxy(
    pod: types.Pod,
    ended: types.Terminated,
    again: payload.Unfinished | None,
    unfinished: tuple[payload.Unfinished, ...],
) -> Iterator[_Judgement]:
    """Yield the judgements about a proxy that has ended."""
    proxy = _find_proxy(pod)
    assert proxy is not None
    how = f"the proxy ended with {ended.exitCode}"
    if container_restart.will_restart(proxy, pod.spec.restartPolicy, ended):
        yield Action.WAIT, Reason.PROXY_RESTARTING, how
    if again is not None:
        yield Action.WAIT, again.reason, str(again)
    if not unfinished:
        yield Action.IGNORE, Reason.PROXY_ENDED, "payload and proxy have ended"
    if _is_disrupted(pod):
        yield Action.IGNORE, Reason.DISRUPTED, "the kubelet is ending the pod"
    message = f"{how} and is not started again, while {payload.join_some(unfinished)}"
    yield Action.REPORT, Reason.PROXY_LOST, message


def _list_obstacles(pod: types.Pod, proxy: types.ContainerStatus | None) -> Iterator[_Judgement]:
    """Yield the reasons why the proxy of a finished pod can't be stopped."""
    if proxy is None or proxy.state.running is None or not proxy.containerID:
        yield Action.REPORT, Reason.PROXY_NOT_RUNNING, _describe_not_running(proxy)
    if _PROXYLESS in service.split_list(pod.metadata.annotations.get(names.TEMPLATES, "")):
        yield Action.REPORT, Reason.PROXY_WITHOUT_ENVOY, _describe_without_envoy(pod)


def _is_disrupted(pod: types.Pod) -> bool:
    """Return whether the kubelet is ending the whole pod, in which containers end in any order."""
    if pod.status.reason in ("Evicted", "DeadlineExceeded", "Preempting", "Terminated"):
        return True
    ends = ("DisruptionTarget", "True")
    return any((each.type, each.status) == ends for each in pod.status.conditions)


def _describe_not_running(proxy: types.ContainerStatus | None) -> str:
    waiting = proxy.state.waiting if proxy is not None else None
    why = (waiting.reason if waiting else None) or "no reason given"
    return f"work finished, but {names.PROXY} is not running ({why}), so the pod cannot complete"


def _describe_without_envoy(pod: types.Pod) -> str:
    meta = pod.metadata
    return (
        f"work finished, but only a signal ends the pilot-agent of template {_PROXYLESS}; run: "
        f"kubectl -n {meta.namespace} exec {meta.name} -c {names.PROXY} -- bash -c 'kill 1'"
    )


def _list_holding_containers(
    pod: types.Pod, selection: payload.Selection, policy: Policy
) -> tuple[str, ...]:
    without = {names.PROXY, *(container.name for container in selection.containers)}
    rest = tuple(each for each in pod.spec.containers if each.name not in without)
    held = payload.list_unfinished(pod, rest, old_ends_count=policy.old_ends_count)
    return tuple(entry.container for entry in held)
