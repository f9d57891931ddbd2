"""Comparison of the gateway's Envoy configuration with the charm's expectation."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
import structlog

from integrator_contract import names, refusals, seen
from sidecar_lifecycle.decide import seen as rules
from sidecar_lifecycle.model import envoy, types
from sidecar_lifecycle.shell.kube import client, errors, streams
from sidecar_lifecycle.shell.kube.fence import Fence

log = structlog.get_logger(__name__)

SOON, LATER = 1.0, 30.0
"""Seconds between two checks: SOON for `WHILE` seconds after a changed expectation, then LATER
or when the charm asks."""
WHILE = 30.0
LATE = 15.0
"""Seconds after which Envoy usually has a change."""
MOST_PODS = 5
"""Limit of checked gateway pods; the same istiod configures the other pods."""
LARGEST = 32 << 20
"""Limit of an answer in bytes; 200 routes of this charm have 1 MB."""
ISTIOD_PORT = 15014
"""Istiod answers debug requests from localhost here."""
TIMEOUT = 5.0
"""Seconds for all requests to a pod."""

_T = TypeVar("_T")


class EnvoyReader:
    """Checks the gateway's Envoys periodically, and calls `changed` when the result changes."""

    def __init__(self, connection: client.Client, changed: Callable[[], None]) -> None:
        self._client = connection
        self._changed = changed
        self._fence = Fence()
        self._asked = asyncio.Event()
        self.state = seen.EnvoyState(of="")
        """The last result; `of` is empty while there is no expectation."""

    async def run(self, expected: seen.Expectation | None) -> None:
        """Compare the gateway with the expectation until cancelled."""
        self.state = seen.EnvoyState(of=expected.digest() if expected else "")
        time = asyncio.get_running_loop().time
        began = time()
        while expected:
            answer = await self._compare_gateway(expected)
            is_late = bool(answer.missing) and time() - began >= LATE
            answer = dataclasses.replace(answer, is_late=is_late)
            is_news = _select_noticed_part(answer) != _select_noticed_part(self.state)
            self.state = answer
            if is_news:
                log.info("gateway seen", answer=answer)
                self._changed()
            await asyncio.sleep(SOON)
            if time() - began >= WHILE:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._asked.wait(), LATER)
            self._asked.clear()

    async def answer_state(self, _: Mapping[str, str]) -> seen.EnvoyState:
        """Return the last result and check again soon, as a hook may have changed the gateway."""
        self._asked.set()
        return self.state

    async def answer_has_chain(self, parameters: Mapping[str, str]) -> bool:
        """Tell whether a pod's Envoy has an outbound filter chain of an EnvoyFilter.

        Raises:
            KubeError: The Envoy is not seen, or has no outbound listener yet.
        """
        where = (parameters["namespace"], parameters["pod"], names.PROXY_ADMIN_PORT)
        resource = "dynamic_listeners&name_regex=^virtualOutbound$"
        async with streams.open_port_forward(self._client, *where, deadline=TIMEOUT) as forward:
            listeners = await _get_configs(forward, resource, envoy.Listener)
        if not listeners:
            raise errors.StreamError(f"Envoy of Pod {where[1]} has no outbound listener")
        return rules.has_chain(f"{parameters['name']}.", listeners)

    async def _compare_gateway(self, expected: seen.Expectation) -> seen.EnvoyState:
        ready: list[str] = []
        try:
            labels = ",".join(f"{key}={value}" for key, value in expected.selector.items())
            ready = await self._list_ready_pods(expected.namespace, labels)
            views = [
                rules.compare_proxy(expected, await self._read_proxy(expected.namespace, pod))
                for pod in ready[:MOST_PODS]
            ]
        except errors.KubeError as error:
            unseen, detail, refusal = seen.ReadFailure.UNREACHABLE, str(error)[:200], None
            if isinstance(error, errors.TooLarge):
                unseen = seen.ReadFailure.TOO_LARGE
            elif isinstance(error, errors.StatusError):
                refusal = refusals.read_refusal(error.code, error.message)
                if error.code in (401, 403) and not refusal:
                    right = "get and create pods/portforward" if ready else "list pods"
                    unseen, detail = seen.ReadFailure.FORBIDDEN, f"{right} in {expected.namespace}"
            return seen.EnvoyState(
                of=expected.digest(),
                unseen=unseen,
                detail=detail,
                refusal=refusal,
                ready=len(ready),
            )
        if not views:
            return seen.EnvoyState(of=expected.digest(), unseen=seen.ReadFailure.NO_PODS)
        answer = rules.combine_views(expected, views, ready=len(ready))
        if any(each.cause is seen.Cause.ROUTES_MISSING for each in answer.missing):
            return dataclasses.replace(answer, words=await self._ask_istiod(expected, ready))
        return answer

    async def _ask_istiod(self, expected: seen.Expectation, pods: Sequence[str]) -> str:
        """Ask istiod for Envoy's words about routes that it rejects; empty if it has none."""
        proxies = {f"{pod}.{expected.namespace}" for pod in pods}
        # The right to ask istiod may be missing, and only one of its pods serves an Envoy.
        with contextlib.suppress(errors.KubeError):
            for pod in (await self._list_ready_pods(expected.istiod, names.ISTIOD))[:MOST_PODS]:
                where = (self._client, expected.istiod, pod, ISTIOD_PORT)
                async with streams.open_port_forward(*where, deadline=TIMEOUT) as forward:
                    data = await forward.get("/debug/syncz", largest=LARGEST)
                with errors.translate_decode_errors():
                    known = msgspec.json.decode(data, type=list[envoy.Synchronization])
                if words := rules.find_route_error(proxies, known):
                    return words
        return ""

    async def _list_ready_pods(self, namespace: str, labels: str) -> list[str]:
        """List the ready pods by name, one of each workload first."""
        where = client.make_path(types.Pod, namespace)
        pages = self._client.list_pages(
            where, types.Pod, self._fence, labels=labels, concerns=is_ready
        )
        found = {pod.metadata.name: pod.metadata async for _, pods in pages for pod in pods}
        listed = sorted(found, reverse=True)
        firsts = {next((o.uid for o in found[name].ownerReferences), ""): name for name in listed}
        return sorted(found, key=lambda name: (name not in firsts.values(), name))

    async def _read_proxy(self, namespace: str, pod: str) -> envoy.Configuration:
        where = (self._client, namespace, pod, names.PROXY_ADMIN_PORT)
        forwarded = functools.partial(streams.open_port_forward, *where, deadline=TIMEOUT)
        clusters, secrets = "dynamic_active_clusters&mask=cluster.name", "dynamic_warming_secrets"
        async with forwarded() as forward:
            found = envoy.Configuration(
                listeners=await _get_configs(forward, "dynamic_listeners", envoy.Listener),
                routes=None,
                clusters=await _get_configs(forward, clusters, envoy.DynamicCluster),
                warming_secrets=await _get_configs(forward, f"{secrets}&mask=name", envoy.Named),
            )
        # Tenants' routes may be too large for one or too slow for the other limit.
        try:
            async with forwarded() as forward:
                found.routes = await _get_configs(forward, "dynamic_route_configs", envoy.Routes)
        except errors.TooLarge:
            pass
        except errors.Unreachable as error:
            found.unanswered = str(error)
        return found


async def _get_configs(forward: streams.PortForward, resource: str, kind: type[_T]) -> list[_T]:
    data = await forward.get(f"/config_dump?resource={resource}", largest=LARGEST)
    with errors.translate_decode_errors():
        return msgspec.json.decode(data, type=dict[str, list[kind]]).get("configs", [])


def _select_noticed_part(answer: seen.EnvoyState) -> tuple[object, ...]:
    """Return the part of an answer whose changes the charm gets a notice about.

    Tenants can change the other parts, such as names of objects, as often as they like.
    """
    hosts = (answer.guarded, answer.unguarded, answer.is_open, answer.routes)
    causes = {each.cause for each in answer.missing}
    return (answer.unseen, answer.detail, *hosts, causes, answer.is_late)


def is_ready(pod: types.Pod) -> bool:
    """Tell whether a pod is Ready and not being deleted."""
    return pod.metadata.deletionTimestamp is None and any(
        (condition.type, condition.status) == ("Ready", "True")
        for condition in pod.status.conditions
    )
