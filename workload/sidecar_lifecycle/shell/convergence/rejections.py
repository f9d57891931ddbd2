"""Finds pods of the model, and changes by admission, that another team's policy rejects."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Container
from typing import Any

import msgspec
import structlog

from integrator_contract import names, pods, refusals, rejections
from sidecar_lifecycle.decide.convergence import trial
from sidecar_lifecycle.model import resources
from sidecar_lifecycle.shell.kube import errors
from sidecar_lifecycle.shell.kube.client import Client
from sidecar_lifecycle.shell.settings import Live, parse_admission

from . import cluster as hands
from . import trials

log = structlog.get_logger(__name__)

PAUSE = 30.0
"""Seconds between two checks of rejected pods, and of workloads that lack a pod."""
MOST_JOBS = 50
"""Limit of the Jobs, and of the CronJobs, whose pods are tried: the newest."""


@dataclasses.dataclass(slots=True)
class RejectionObserver:
    """Tries pods by dry run: all of them after a change of settings, else missing and new ones."""

    cluster: hands.ModelClient
    tell: Callable[[], None]
    wanted: pods.Settings | None = None
    """The settings of admission; None while no webhook runs."""
    is_synced: bool = False
    """Whether `wanted` is known."""
    tried: pods.Settings | None = None
    """The settings at the last try of all pods, without `left_out` and `digest`."""
    rejected: list[dict[str, Any]] = dataclasses.field(default_factory=list[dict[str, Any]])
    """Pods with a forbidden change, tried again until they are admitted with it."""
    jobs: set[str] = dataclasses.field(default_factory=set[str])
    """The UIDs of Jobs and CronJobs whose pods were tried."""
    failing: set[str] = dataclasses.field(default_factory=set[str])
    """The workloads that, by Events, could not create a pod."""
    woken: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    @property
    def trials(self) -> trials.Trials:
        """The dry runs, by the current settings."""
        return trials.Trials(self.cluster.client, self.cluster.settings)

    async def run(self) -> None:
        """Check after each change of settings and periodically, until cancelled."""
        while True:
            self.woken.clear()
            try:
                with self.cluster.fence.isolate("converge", self.cluster.model_namespace):
                    if self.cluster.settings.leader and self.is_synced:
                        await self.find_rejections()
            except errors.KubeError as error:
                log.warning("rejections are not known", error=str(error))
            await self.cluster.clock.wait(self.woken, PAUSE)

    async def follow_settings(self) -> None:
        """Keep `wanted` up to date with the webhook's ConfigMap."""
        name = names.name_object(self.cluster.settings.application, names.ADMISSION)
        fields = f"metadata.name={name}"
        async for change in self.cluster.watch(resources.ConfigMap, fields=fields).changes():
            if change.kind == "synced":
                self.is_synced = True
            elif change.object is not None:
                self.wanted = None
                if change.kind != "deleted":
                    try:
                        text = change.object.data.get("settings.json", "")
                        self.wanted = parse_admission(text)
                    except ValueError as error:
                        log.warning("settings of admission can't be read", error=str(error))
            self.woken.set()

    async def find_rejections(self) -> None:
        """Find and store the current rejections, and tell the charm if they changed."""
        before = read((await self.cluster.read_memory()).data)
        settings = None
        if self.wanted:
            settings = dataclasses.replace(self.wanted, left_out=(), digest="")
        changes: dict[str, refusals.Refusal] = {}
        rejected: list[dict[str, Any]] = []

        async def forbidden(made: dict[str, Any]) -> dict[str, refusals.Refusal]:
            found = await self.trials.find_forbidden(made, self.wanted) if self.wanted else {}
            if found.keys() - changes.keys():
                rejected.append(made)
            changes.update(found)
            return found

        for made in self.rejected:
            await forbidden(made)
        # A change that is no longer forbidden on these pods may be forbidden on others.
        is_everything = settings != self.tried or not before.changes.keys() <= changes.keys()
        failing = await self.cluster.list_failing()
        if is_everything or failing - self.failing:
            own, application = await self.trials.read_own_pod(), self.cluster.settings.application
            # Samples of future pods: a server, a task and this charm.
            await forbidden(trial.make_own_pod(own, {}, "Always"))
            await forbidden(trial.make_own_pod(own, {}, "Never"))
            await forbidden(trial.make_own_pod(own, {names.NAME: application}, "Always"))
        earlier = {**before.workloads, **before.sidecars}
        due = {*earlier, *(failing - self.failing)}
        workloads: dict[str, refusals.Refusal] = {}
        sidecars: dict[str, refusals.Refusal] = {}
        for workload, made in await self._list_next_pods(due, everything=is_everything):
            with self.cluster.fence.isolate("converge", self.cluster.model_namespace):
                refusal = await self.trials.find_refusal(made)
                is_new = refusal is not None and refusal != earlier.get(workload)
                found = await forbidden(made) if is_everything or is_new else {}
                if refusal and not found:
                    outside = trial.hide_from_webhook(made, **{names.INJECT: "false"})
                    is_alone = await self.trials.find_refusal(outside) is not None
                    (workloads if is_alone else sidecars)[workload] = refusal
        self.tried, self.rejected, self.failing = settings, rejected, failing
        # The words of a webhook may differ each time, so only another author is news.
        for change, refusal in before.changes.items():
            if change in changes and changes[change].author == refusal.author:
                changes[change] = refusal
        found = rejections.Rejections(changes=changes, workloads=workloads, sidecars=sidecars)
        if found != before:
            text = msgspec.json.encode(found, order="sorted").decode()
            await self.cluster.write_entry(rejections.KEY, text)
            log.info("rejections", changes=[*changes], workloads=[*workloads])
            self.tell()

    async def _list_next_pods(
        self, due: Container[str], *, everything: bool
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return the next pod of every workload, or only of due ones, short ones and new Jobs."""
        found: list[tuple[str, dict[str, Any]]] = []
        sets: list[resources.Creator] | None = None
        jobs: set[str] = set()
        for kind, model in {**resources.WORKLOADS, **resources.JOBS}.items():
            listed = await self.cluster.list_objects(
                resources.Creator, of=model, concerns=resources.creates_pods
            )
            if kind in resources.JOBS:
                listed.sort(key=lambda each: each.metadata.creationTimestamp or "")
                listed = listed[-MOST_JOBS:]
                jobs |= {each.metadata.uid for each in listed}
            for workload in listed:
                name = f"{kind}/{workload.metadata.name}"
                is_new = workload.metadata.uid in jobs - self.jobs
                is_due = is_new or name in due or resources.is_short(kind, workload)
                if not (everything or is_due):
                    continue
                owner, creator = kind, workload
                if kind == "Deployment":
                    sets = sets or await self.cluster.list_objects(
                        resources.Creator, of=resources.ReplicaSet
                    )
                    owner, creator = "ReplicaSet", _find_newest(workload, sets)
                if creator is not None:
                    found.append((name, trial.make_pod_of(owner, creator)))
        self.jobs = jobs
        return found


def read(data: dict[str, str]) -> rejections.Rejections:
    """Return the stored rejections; a value that can't be decoded counts as empty."""
    try:
        return msgspec.json.decode(data.get(rejections.KEY, "{}"), type=rejections.Rejections)
    except (msgspec.MsgspecError, RecursionError):
        return rejections.Rejections()


async def run(client: Client, live: Live, *, tell: Callable[[], None]) -> None:
    """Check for rejections until cancelled, and call `tell` when they change."""
    observer = RejectionObserver(hands.ModelClient(client, live), tell)
    async with asyncio.TaskGroup() as group:
        group.create_task(observer.follow_settings(), name="admission settings")
        group.create_task(observer.run(), name="rejections")


def _find_newest(
    deployment: resources.Creator, sets: list[resources.Creator]
) -> resources.Creator | None:
    """Return the ReplicaSet that creates a Deployment's new pods."""
    uid = deployment.metadata.uid
    return max(
        (each for each in sets if uid in {owner.uid for owner in each.metadata.ownerReferences}),
        key=lambda each: int(each.metadata.annotations.get(names.ROLLOUT, "0")),
        default=None,
    )
