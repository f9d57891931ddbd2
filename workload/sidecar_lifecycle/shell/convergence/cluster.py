"""The hands of convergence: everything that it reads from the apiserver and asks of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import tenacity

from integrator_contract import answers, names, namespaces, refusals, rejections
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import eligible, stale
from sidecar_lifecycle.decide.convergence import facts, memory
from sidecar_lifecycle.model import resources, types
from sidecar_lifecycle.shell.kube import errors
from sidecar_lifecycle.shell.kube.client import Client, answer, path
from sidecar_lifecycle.shell.kube.fence import Fence
from sidecar_lifecycle.shell.settings import Live, Settings

from . import trials

T = TypeVar("T", bound=types.Object)

LISTED_AT_ONCE = 8
"""Namespaces whose pods are listed at the same time."""


class Conflict(errors.KubeError):
    """Somebody else wrote the memory meanwhile: another leader, or a request."""


@dataclass(frozen=True, slots=True)
class Owners:
    """The workloads of the model, and how many pods each should have."""

    found: dict[tuple[str, str], eligible.Owner] = field(
        default_factory=dict[tuple[str, str], eligible.Owner]
    )
    desired: dict[str, int] = field(default_factory=dict[str, int])

    def lookup(self, kind: str, name: str) -> eligible.Owner | None:
        """Return an owner by kind and name."""
        return self.found.get((kind, name))


@dataclass(slots=True)
class Cluster:
    """The model, as the apiserver has it."""

    client: Client
    live: Live
    clock: Callable[[], float] = time.time
    fence: Fence = field(default_factory=Fence)
    _replica_sets: dict[str, eligible.Owner] = field(default_factory=dict[str, eligible.Owner])

    @property
    def settings(self) -> Settings:
        """The settings at this moment."""
        return self.live.current

    @property
    def itself(self) -> types.Namespace:
        """The model, for whatever is about it as a whole."""
        return types.Namespace(metadata=types.ObjectMeta(name=self.settings.model))

    # Reading

    async def pods(self) -> list[types.Pod]:
        """List the pods of the model."""
        return await self._list(types.Pod)

    async def owners(self, pods: list[types.Pod]) -> Owners:
        """Read the workloads, and the ReplicaSets between them and these pods."""
        owners = Owners()
        lists = await asyncio.gather(*map(self._list, resources.WORKLOADS.values()))
        for kind, listed_ones in zip(resources.WORKLOADS, lists, strict=True):
            for each in listed_ones:
                with self.fence.around("converge", each):
                    owners.found[kind, each.metadata.name] = self._workload(each)
                    owners.desired[f"{kind}/{each.metadata.name}"] = resources.desired(each)
        wanted = {
            (each.name, each.uid)
            for pod in pods
            for each in pod.metadata.ownerReferences
            if each.kind == "ReplicaSet"
        }
        known = self._replica_sets
        self._replica_sets = {uid: known[uid] for _, uid in wanted if uid in known}
        for name, uid in sorted(wanted):
            owner = self._replica_sets.get(uid) or await self._replica_set(name)
            if owner is not None:
                # Which Deployment it belongs to does not change as long as it has one.
                if owner.owners:
                    self._replica_sets[owner.uid] = owner
                owners.found["ReplicaSet", name] = owner
        return owners

    def _workload(self, found: types.Object) -> eligible.Owner:
        owner = _owner(found)
        ours = names.owner(self.settings.model, self.settings.application)
        if found.metadata.labels.get(names.OWNER) == ours:
            # The gateway workload goes with the application, which does not manage its pods.
            owner = replace(owner, owners=())
        return owner

    async def _replica_set(self, name: str) -> eligible.Owner | None:
        kind = resources.ReplicaSet
        try:
            found = await self.client.find(kind, self.settings.model, name)
        except errors.NotUnderstood as error:
            self.fence.caught("decode", kind(metadata=self._meta(name)), error)
            return None
        return None if found is None else _owner(found)

    async def creators(self, kind: type[types.Object]) -> list[resources.Creator]:
        """List the objects of a kind of the model with what their next pods are made of."""
        return await self._list(resources.Creator, of=kind)

    async def elsewhere(self) -> list[answers.PodAnswer]:
        """Find pods without their sidecar in the other namespaces that we look after."""
        served = self.settings.served()
        if served.kinds <= namespaces.MODEL_ONLY:
            return []
        at_once = asyncio.Semaphore(LISTED_AT_ONCE)

        async def lacking(namespace: types.Namespace) -> list[answers.PodAnswer]:
            async with at_once:
                return await self._lacking(namespace)

        theirs = [
            each
            for each in await self._list(types.Namespace)
            if served.kind_of(each.metadata.name, each.metadata.labels) not in (None, "model")
        ]
        found = await asyncio.gather(*map(lacking, theirs))
        return [pod for pods in found for pod in pods]

    async def _lacking(self, namespace: types.Namespace) -> list[answers.PodAnswer]:
        name = namespace.metadata.name
        scope = eligible.Scope(
            model="",
            application="",
            namespace_labels=namespace.metadata.labels,
            mesh_revision=self.settings.mesh_revision,
            membership="none",
        )
        found: list[answers.PodAnswer] = []
        for pod in await self._list(types.Pod, namespace=name):
            with self.fence.around("converge", pod):
                said = eligible.wanted(pod, scope)
                if said.wanted and eligible.alive(pod) and not eligible.injected(pod):
                    lacks = answers.PodAnswer(
                        namespace=name,
                        name=pod.metadata.name,
                        workload="",
                        fixable=False,
                        reason=Reason.OTHER_NAMESPACE,
                        message=f"{said.message}; outside of the model pods are only reported",
                    )
                    found.append(lacks)
        return found

    async def is_served(self) -> bool:
        """Tell whether istiod has written its root certificate into the model's namespace."""
        # A list, which the right to list them allows: the name is not one of ours.
        fields = f"metadata.name={names.ROOT_CERTIFICATE}"
        return bool(await self._list(resources.ConfigMap, fields=fields))

    async def injectors(self) -> tuple[str, ...]:
        """Return the identities of the injector's webhook configurations."""
        # They only sharpen when a hold is lifted, so they are not worth a right of their own.
        kind = types.MutatingWebhookConfiguration
        found = await self._list_if_allowed(kind, labels="app=sidecar-injector")
        return tuple(sorted(each.metadata.uid for each in found))

    async def refused(self, since: Mapping[str, float]) -> dict[str, str]:
        """Return why workloads get no new pod, as Events of their controllers since then say."""
        found: dict[str, str] = {}
        for each in await self._list_if_allowed(types.Event, fields="reason=FailedCreate"):
            with self.fence.around("converge", each):
                workload = _creator(each.involvedObject)
                at = facts.timestamp(each.lastTimestamp) or 0.0
                if workload in since and at >= since[workload] - 1:
                    found[workload] = refusals.of_event(each.message or "")
        return found

    # Asking and acting

    async def ask(self, replica: facts.Replica, scope: eligible.Scope) -> facts.Answer:
        """Have the apiserver create the workload's next pod as a dry run, and look at it."""
        verdict: facts.Verdict = "refused"
        message = f"{replica.workload} can't be dealt with; the log says why"
        pod = types.Pod(metadata=self._meta(replica.name, replica.uid))
        with self.fence.around("converge", pod):
            verdict, message = await trials.Trials(self.client, self.settings).ask(replica, scope)
        return facts.Answer(verdict=verdict, message=message, uid=replica.uid, at=self.clock())

    def _meta(self, name: str, uid: str = "") -> types.ObjectMeta:
        return types.ObjectMeta(name=name, namespace=self.settings.model, uid=uid)

    async def evict(self, replica: facts.Replica) -> None:
        """Evict exactly this pod; a PodDisruptionBudget in the way is error 429."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": replica.name, "namespace": self.settings.model},
            "deleteOptions": {"preconditions": {"uid": replica.uid}},
        }
        where = path(types.Pod, self.settings.model, replica.name, "eviction")
        await self.client.request("POST", where, body=body)

    # Remembering

    @property
    def memory_name(self) -> str:
        """The name of the ConfigMap with the memory."""
        return rejections.config_map(self.settings.application)

    async def recall(self) -> resources.ConfigMap:
        """Read the ConfigMap; one without resourceVersion does not exist yet."""
        found = await self.client.find(resources.ConfigMap, self.settings.model, self.memory_name)
        return found or resources.ConfigMap(metadata=types.ObjectMeta(name=self.memory_name))

    @tenacity.retry(retry=tenacity.retry_if_exception_type(Conflict))
    async def remember_entry(self, key: str, text: str) -> None:
        """Write one entry of the ConfigMap, whatever another process writes to the others."""
        stored = await self.recall()
        await self.remember(stored, {**stored.data, key: text})

    async def remember(
        self, before: resources.ConfigMap, data: dict[str, str]
    ) -> resources.ConfigMap:
        """Write the ConfigMap.

        Raises:
            Conflict: Somebody wrote it since `before` was read.
        """
        kind, settings, meta = resources.ConfigMap, self.settings, before.metadata
        ours = names.labels(settings.model, settings.application, "convergence")
        method, name = ("PUT", self.memory_name) if meta.resourceVersion else ("POST", "")
        body = kind(
            apiVersion="v1",
            kind="ConfigMap",
            metadata=types.ObjectMeta(
                name=self.memory_name,
                namespace=settings.model,
                resourceVersion=meta.resourceVersion,
                labels={**meta.labels, **ours},
                annotations=meta.annotations,
                ownerReferences=meta.ownerReferences,
            ),
            data=data,
        )
        try:
            written = await self.client.request(
                method, path(kind, settings.model, name), body=body
            )
        except errors.StatusError as error:
            # Not found: it was deleted since, as when the application is being removed.
            if error.code == 409 or (error.code == 404 and method == "PUT"):
                raise Conflict(str(error)) from error
            raise
        return answer(written, kind)

    # The API

    async def _list_if_allowed(
        self, kind: type[T], *, labels: str = "", fields: str = ""
    ) -> list[T]:
        try:
            return await self._list(kind, labels=labels, fields=fields)
        except errors.StatusError as error:
            if error.code == 403:
                return []
            raise

    async def _list(
        self,
        kind: type[T],
        *,
        of: type[types.Object] | None = None,
        labels: str = "",
        fields: str = "",
        namespace: str | None = None,
    ) -> list[T]:
        listed_kind = of or kind
        everywhere = kind in (types.MutatingWebhookConfiguration, types.Namespace)
        where = path(listed_kind, None if everywhere else namespace or self.settings.model)
        pages = self.client.pages(where, kind, self.fence, labels=labels, fields=fields)
        return [each async for _, items in pages for each in items]


def _creator(about: types.ObjectReference) -> str:
    """Name the workload that an Event about the creation of its pods means."""
    name = about.name or ""
    if about.kind == "ReplicaSet":
        # Deployments name their ReplicaSets so (k8s.io/kubernetes pkg/controller/deployment,
        # sync.go, getNewReplicaSet).
        return f"Deployment/{name.rpartition('-')[0]}"
    return f"{about.kind}/{name}"


def _owner(found: types.Object) -> eligible.Owner:
    return eligible.Owner(
        uid=found.metadata.uid,
        owners=tuple(found.metadata.ownerReferences),
        disabled=eligible.switched_off(found.metadata),
        withheld_from=resources.withheld_from(found),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A snapshot, and what else was read with it."""

    snapshot: facts.Snapshot
    scope: eligible.Scope
    pods: dict[str, types.Pod]
    """By UID."""


async def read(
    cluster: Cluster,
    pods: list[types.Pod],
    remembered: memory.Memory,
    answers: dict[str, facts.Answer],
    proxy: stale.Proxy = stale.UNKNOWN,
) -> Reading:
    """Read what the plan needs to know, and only if pods are to be replaced who owns them.

    Old proxies are found where it is known what new pods get.
    """
    namespace = await cluster.client.get(types.Namespace, None, cluster.settings.model)
    scope = cluster.settings.scope(namespace.metadata.labels)
    live: list[types.Pod] = []
    # A StatefulSet makes no other while its pod's object is left.
    victims = {each.uid for each in remembered.rounds.values()}
    is_faulty = False
    for pod in pods:
        with cluster.fence.around("converge", pod):
            if eligible.alive(pod) or pod.metadata.uid in victims:
                fault, *_ = facts.diagnose(pod, scope, eligible.wanted(pod, scope))
                is_faulty = is_faulty or bool(fault)
                live.append(pod)
    busy = remembered.rounds or remembered.holds or remembered.request or proxy.known
    owners = await cluster.owners(live) if is_faulty or busy else Owners()
    disabled = eligible.switched_off(namespace.metadata)
    replicas: list[facts.Replica] = []
    for pod in live:
        with cluster.fence.around("converge", pod):
            ownership = eligible.ownership(pod, disabled, owners.lookup)
            replicas.append(facts.replica(pod, scope, ownership, proxy))
    injectors, is_served = await asyncio.gather(cluster.injectors(), cluster.is_served())
    snapshot = facts.Snapshot(
        replicas=tuple(replicas),
        desired=owners.desired,
        fingerprint=facts.fingerprint(scope, injectors),
        mesh=facts.mesh(scope),
        is_served=is_served,
        answers=answers,
    )
    since = {
        workload: each.since
        for workload, each in remembered.rounds.items()
        if snapshot.lacks_pods(workload)
    }
    if since:
        snapshot = replace(snapshot, refused=await cluster.refused(since))
    return Reading(snapshot=snapshot, scope=scope, pods={pod.metadata.uid: pod for pod in live})
