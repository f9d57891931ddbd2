"""All requests of convergence to the API server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from integrator_contract import answers, names, namespaces, refusals, rejections
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import eligible, stale
from sidecar_lifecycle.decide.convergence import choice, facts, memory
from sidecar_lifecycle.decide.convergence.plan import Look, Moves
from sidecar_lifecycle.model import resources, types
from sidecar_lifecycle.shell.kube import errors
from sidecar_lifecycle.shell.kube.client import Client, decode_answer, make_path
from sidecar_lifecycle.shell.kube.fence import Fence
from sidecar_lifecycle.shell.kube.watch import Watch
from sidecar_lifecycle.shell.settings import Live, ServiceSettings

from . import trials

T = TypeVar("T", bound=types.Object)

LISTED_AT_ONCE = 8
"""Limit of namespaces whose pods are listed concurrently."""


class Conflict(errors.KubeError):
    """Another process updated the ConfigMap first: another leader, or a request for restarts."""


class Clock:
    """The system clock, which tests replace."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Wait until the event is set, or for so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await event.wait()


Owners = dict[tuple[str, str], eligible.Owner]
"""The owners of pods by kind and name."""


@dataclass(slots=True)
class ModelClient:
    """A client for the objects of the model."""

    client: Client
    live: Live
    clock: Clock = field(default_factory=Clock)
    fence: Fence = field(default_factory=Fence)

    @property
    def settings(self) -> ServiceSettings:
        """The current settings."""
        return self.live.current

    @property
    def model_namespace(self) -> types.Namespace:
        """The model's namespace, as the subject of errors that concern no single pod."""
        return types.Namespace(metadata=types.ObjectMeta(name=self.settings.model))

    # Reads

    async def list_objects(
        self,
        kind: type[T],
        *,
        of: type[types.Object] | None = None,
        labels: str = "",
        fields: str = "",
        namespace: str | None = None,
        concerns: Callable[[T], bool] = lambda _: True,
    ) -> list[T]:
        """List the objects of a kind in the model.

        With `of`, list the objects of that kind, decoded as `kind`.
        """
        listed_kind = of or kind
        everywhere = kind in (types.MutatingWebhookConfiguration, types.Namespace)
        where = make_path(listed_kind, None if everywhere else namespace or self.settings.model)
        pages = self.client.list_pages(
            where, kind, self.fence, labels=labels, fields=fields, concerns=concerns
        )
        return [each async for _, items in pages for each in items]

    def watch(self, kind: type[T], *, fields: str = "") -> Watch[T]:
        """Watch the objects of a kind in the model as soon as RBAC allows it."""
        return Watch(
            self.client,
            kind,
            namespace=self.settings.model,
            fields=fields,
            fence=self.fence,
            is_patient=True,
        )

    async def _list_if_allowed(
        self, kind: type[T], *, labels: str = "", fields: str = ""
    ) -> list[T]:
        try:
            return await self.list_objects(kind, labels=labels, fields=fields)
        except errors.StatusError as error:
            if error.code == 403:
                return []
            raise

    async def read_owners(self) -> tuple[Owners, dict[str, int], frozenset[str]]:
        """Read the owners of pods, the desired replicas by workload, and the ordered workloads."""
        owners: Owners = {}
        desired: dict[str, int] = {}
        ordered: set[str] = set()
        kinds = {**resources.WORKLOADS, "ReplicaSet": resources.ReplicaSet}
        lists = await asyncio.gather(*map(self.list_objects, kinds.values()))
        for kind, objects in zip(kinds, lists, strict=True):
            for each in objects:
                with self.fence.isolate("converge", each):
                    owners[kind, each.metadata.name] = self._read_owner(each)
                    if isinstance(each, resources.Workload):
                        workload = f"{kind}/{each.metadata.name}"
                        desired[workload] = resources.count_desired(each)
                        if each.spec.podManagementPolicy == resources.ORDERED:
                            ordered.add(workload)
        return owners, desired, frozenset(ordered)

    def _read_owner(self, found: types.Object) -> eligible.Owner:
        # The application owns the gateway workload only for garbage collection and does not manage
        # its pods. The ReplicaSet has the same label, but its owner reference is kept.
        ours = names.name_owner(self.settings.model, self.settings.application)
        has_label = found.metadata.labels.get(names.OWNER) == ours
        is_ours = has_label and isinstance(found, resources.Workload)
        return eligible.Owner(
            uid=found.metadata.uid,
            owners=() if is_ours else tuple(found.metadata.ownerReferences),
            disabled=eligible.is_switched_off(found.metadata),
            withheld_from=resources.find_withheld(found),
        )

    async def list_uninjected_elsewhere(self) -> list[answers.PodAnswer]:
        """Find pods without their sidecar in served namespaces other than the model's."""
        served = self.settings.served()
        if served.kinds <= namespaces.MODEL_ONLY:
            return []
        theirs = [
            each
            for each in await self.list_objects(types.Namespace)
            if served.find_kind(each.metadata.name, each.metadata.labels) not in (None, "model")
        ]
        at_once = asyncio.Semaphore(LISTED_AT_ONCE)
        found = await asyncio.gather(*(self._list_uninjected(each, at_once) for each in theirs))
        return [pod for pods in found for pod in pods]

    async def _list_uninjected(
        self, namespace: types.Namespace, at_once: asyncio.Semaphore
    ) -> list[answers.PodAnswer]:
        name = namespace.metadata.name
        scope = eligible.Scope(
            model="",
            application="",
            namespace_labels=namespace.metadata.labels,
            mesh_revision=self.settings.mesh_revision,
            membership="none",
        )

        def lacks_sidecar(pod: types.Pod) -> bool:
            is_missing = eligible.is_alive(pod) and not eligible.is_injected(pod)
            return is_missing and eligible.decide_membership(pod, scope).wanted

        async with at_once:
            pods = await self.list_objects(types.Pod, namespace=name, concerns=lacks_sidecar)
        return [
            answers.PodAnswer(
                namespace=name,
                name=pod.metadata.name,
                workload="",
                fixable=False,
                reason=Reason.OTHER_NAMESPACE,
                message=f"{eligible.decide_membership(pod, scope).message};"
                " outside of the model pods are only reported",
            )
            for pod in pods
        ]

    async def is_served(self) -> bool:
        """Tell whether istiod has written its root certificate into the model's namespace."""
        # A list, because the permission `list` covers any name, and `get` only this charm's.
        fields = f"metadata.name={names.ROOT_CERTIFICATE}"
        return bool(await self.list_objects(resources.ConfigMap, fields=fields))

    async def list_injectors(self) -> tuple[str, ...]:
        """Return the UIDs of the injector's webhook configurations."""
        # They only help to end a hold sooner, so a missing permission is accepted.
        kind = types.MutatingWebhookConfiguration
        found = await self._list_if_allowed(kind, labels="app=sidecar-injector")
        return tuple(sorted(each.metadata.uid for each in found))

    async def list_failing(self) -> set[str]:
        """Return the objects whose controller could not create a pod, as KIND/NAME."""
        found = await self._list_if_allowed(types.Event, fields="reason=FailedCreate")
        return {_name_creator(each.involvedObject) for each in found}

    async def list_refusals(self, since: Mapping[str, float]) -> dict[str, str]:
        """Return why workloads get no new pod, from Events of their controllers since a time."""
        found: dict[str, str] = {}
        events = await self._list_if_allowed(types.Event, fields="reason=FailedCreate")
        # An Event that happens again keeps its name, so the order of names is not that of time.
        for each in sorted(events, key=lambda each: each.lastTimestamp or ""):
            with self.fence.isolate("converge", each):
                workload = _name_creator(each.involvedObject)
                at = facts.parse_timestamp(each.lastTimestamp) or 0.0
                if workload in since and at >= since[workload] - 1:
                    found[workload] = refusals.read_event(
                        each.message or "", each.involvedObject.name or ""
                    )
        return found

    # Dry runs and evictions

    async def try_replacement(self, replica: facts.Replica, scope: eligible.Scope) -> facts.Trial:
        """Create the next pod of a workload by dry run, and check the result."""
        reason: Reason | None = Reason.REPLACEMENT_REFUSED
        message = f"{replica.workload} can't be dealt with; the log says why"
        with self.fence.isolate("converge", self.name_pod(replica)):
            reason, message = await trials.Trials(self.client, self.settings).try_replacement(
                replica, scope
            )
        return facts.Trial(reason=reason, message=message, uid=replica.uid, at=self.clock.now())

    def name_pod(self, replica: facts.Replica) -> types.Pod:
        """Return the pod of a replica with its name and UID only."""
        return types.Pod(metadata=self._make_metadata(replica.name, replica.uid))

    def _make_metadata(self, name: str, uid: str = "") -> types.ObjectMeta:
        return types.ObjectMeta(name=name, namespace=self.settings.model, uid=uid)

    async def evict(self, replica: facts.Replica) -> None:
        """Evict a pod, identified by its UID; error 429: a PodDisruptionBudget forbids it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": replica.name, "namespace": self.settings.model},
            "deleteOptions": {"preconditions": {"uid": replica.uid}},
        }
        where = make_path(types.Pod, self.settings.model, replica.name, "eviction")
        await self.client.request("POST", where, body=body)

    # The ConfigMap with the memory of convergence

    @property
    def memory_name(self) -> str:
        """The name of the ConfigMap with the memory of convergence."""
        return rejections.name_config_map(self.settings.application)

    async def read_memory(self) -> resources.ConfigMap:
        """Read the ConfigMap; if it does not exist, the result has no resourceVersion."""
        found = await self.client.find(resources.ConfigMap, self.settings.model, self.memory_name)
        return found or resources.ConfigMap(metadata=self._make_metadata(self.memory_name))

    async def write_entry(self, key: str, text: str) -> None:
        """Write one entry of the ConfigMap, and retry when another process wrote an entry."""
        while True:
            stored = await self.read_memory()
            with contextlib.suppress(Conflict):
                await self.write_memory(stored, {**stored.data, key: text})
                return

    async def write_memory(
        self, before: resources.ConfigMap, data: dict[str, str]
    ) -> resources.ConfigMap:
        """Write the ConfigMap.

        Raises:
            Conflict: Another process wrote it after `before` was read.
        """
        settings, meta = self.settings, before.metadata
        ours = names.make_labels(settings.model, settings.application, "convergence")
        body = resources.ConfigMap(
            apiVersion="v1",
            kind="ConfigMap",
            metadata=msgspec.structs.replace(meta, labels={**meta.labels, **ours}),
            data=data,
        )
        method, name = ("PUT", self.memory_name) if meta.resourceVersion else ("POST", "")
        where = make_path(resources.ConfigMap, settings.model, name)
        try:
            written = await self.client.request(method, where, body=body)
        except errors.StatusError as error:
            # 404: the ConfigMap was deleted after it was read, as when the application is removed.
            if error.code == 409 or (error.code == 404 and method == "PUT"):
                raise Conflict(str(error)) from error
            raise
        return decode_answer(written, resources.ConfigMap)


def _name_creator(about: types.ObjectReference) -> str:
    """Return the workload of an Event about the creation of pods, as KIND/NAME."""
    name = about.name or ""
    if about.kind == "ReplicaSet":
        # The name is that of the Deployment with a hash (k8s.io/kubernetes
        # pkg/controller/deployment, sync.go, getNewReplicaSet).
        return f"Deployment/{name.rpartition('-')[0]}"
    return f"{about.kind}/{name}"


async def decide_moves(
    cluster: ModelClient,
    pods: list[types.Pod],
    stored: resources.ConfigMap,
    tried: Mapping[str, facts.Trial],
    proxy: stale.Proxy = stale.UNKNOWN,
) -> tuple[Moves, eligible.Scope]:
    """Decide about these pods; their owners are read only if a pod has to be replaced.

    Old proxies are found only if the proxy of new pods is known.
    """
    settings, remembered = cluster.settings, memory.decode(stored.data)
    namespace = await cluster.client.get(types.Namespace, None, settings.model)
    scope = settings.make_scope(namespace.metadata.labels)
    judged: list[tuple[types.Pod, facts.Replica]] = []
    # A StatefulSet creates the next pod only when the evicted one is deleted.
    victims = {each.uid for each in remembered.rounds.values()}
    for pod in pods:
        with cluster.fence.isolate("converge", pod):
            if eligible.is_alive(pod) or pod.metadata.uid in victims:
                judged.append((pod, facts.read_replica(pod, scope, proxy)))
    is_faulty = any(replica.fault for _, replica in judged)
    is_busy = remembered.rounds or remembered.holds or remembered.request or proxy.is_known
    is_needed = is_faulty or is_busy
    owners, desired, ordered = (
        await cluster.read_owners() if is_needed else ({}, {}, frozenset[str]())
    )
    disabled = eligible.is_switched_off(namespace.metadata)
    replicas: list[facts.Replica] = []
    for pod, replica in judged:
        with cluster.fence.isolate("converge", pod):
            ownership = eligible.find_ownership(
                pod, disabled, lambda kind, name: owners.get((kind, name))
            )
            replicas.append(facts.add_ownership(replica, ownership))
    injectors, is_served = await asyncio.gather(cluster.list_injectors(), cluster.is_served())
    seen = Look(
        replicas=tuple(replicas),
        desired=desired,
        ordered=ordered,
        fingerprint=facts.compute_fingerprint(scope, injectors),
        mesh=f"{scope.data_plane} {scope.mesh_revision or 'default'}",
        is_served=is_served,
        trials=dict(tried),
        memory=remembered,
        mode=settings.restart_pods,
        max_unavailable=settings.restart_max_unavailable,
        now=cluster.clock.now(),
    )
    # Events older than an hour are deleted, so a workload without a round has no limit.
    since = dict.fromkeys((each.workload for each in replicas if each.faulty), 0.0)
    since |= {workload: each.since for workload, each in remembered.rounds.items()}
    since = {workload: at for workload, at in since.items() if seen.lacks_pods(workload)}
    if since:
        seen = dataclasses.replace(seen, refused=await cluster.list_refusals(since))
    return choice.decide(seen), scope
