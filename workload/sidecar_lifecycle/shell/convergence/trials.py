"""Dry-run pods, which test the injector and other teams' policies with a workload's next pod."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from integrator_contract import names, pods, refusals
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import eligible, mutate, startable
from sidecar_lifecycle.decide.convergence import facts, trial
from sidecar_lifecycle.model import resources, types
from sidecar_lifecycle.shell.kube import errors
from sidecar_lifecycle.shell.kube.client import Client, make_path
from sidecar_lifecycle.shell.settings import ServiceSettings

_CREATORS: Mapping[str, type[types.Object]] = {
    "ReplicaSet": resources.ReplicaSet,
    "StatefulSet": resources.StatefulSet,
    "DaemonSet": resources.DaemonSet,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Trials:
    """Creates pods of the model by dry run, which the API server does not store."""

    client: Client
    settings: ServiceSettings

    async def try_replacement(
        self, replica: facts.Replica, scope: eligible.Scope
    ) -> tuple[Reason | None, str]:
        """Return why the replacement of a pod would fail; without a reason it would work."""
        try:
            created = await self._create_pod(await self._make_replacement(replica))
        except errors.StatusError as error:
            return _explain_refusal(error)
        if not eligible.is_in_mesh(created, scope):
            return await self._find_outage(replica.workload, scope)
        containers = [each.name for each in created.spec.containers]
        waiting = startable.find_blocking(
            created.spec.initContainers, created.metadata.annotations, injected=True
        )
        if names.PROXY in containers and waiting is not None:
            message = f"its init container {waiting} would wait for istio-proxy forever"
            return Reason.CANNOT_START, message
        if first := eligible.find_displaced(created):
            message = f"{containers[0]} would be its first container instead of {first}"
            return Reason.WRONG_ORDER, message
        return None, ""

    async def find_refusal(self, made: Mapping[str, Any]) -> refusals.Refusal | None:
        """Return the refusal of a pod; None: the pod is admitted, or a webhook knows no dry runs.

        An admitted pod whose native proxy has lost its restartPolicy counts as refused, as it
        would never start.

        Raises:
            StatusError: The answer is not about the pod, such as that istiod does not respond.
        """
        try:
            created = await self._create_pod(made)
        except errors.StatusError as error:
            refusal = refusals.read_refusal_of_pod(error.code, error.message)
            is_outage = refusal is not None and refusal.is_istio and refusal.is_unreachable
            if is_outage or (refusal is None and error.code != 400):
                raise
            return refusal
        proxies = [each for each in created.spec.initContainers if each.name == names.PROXY]
        if all(each.restartPolicy == "Always" for each in proxies):
            return None
        words = "it removes restartPolicy from init containers"
        return refusals.Refusal(author=refusals.SOME_WEBHOOK, words=words)

    async def find_forbidden(
        self, made: Mapping[str, Any], wanted: pods.Settings
    ) -> dict[str, refusals.Refusal]:
        """Return the changes of admission that another team's policy forbids on a pod.

        Each change is tried alone, also those that replace a forbidden one. The dry-run pod
        already has the change, and the label of a mesh probe keeps this charm's webhook from
        changing it. A change is forbidden only if the pod is refused with it and admitted without
        it. The keys are words of `mutate.CHANGES`.
        """
        pod = msgspec.convert(made, types.Pod)
        refused: dict[str, refusals.Refusal] = {}
        for change in mutate.CHANGES:
            rest = dataclasses.replace(wanted, left_out=(*refused,))
            if change not in mutate.mutate(pod, rest).applied:
                continue
            others = tuple(each for each in mutate.CHANGES if each != change)
            alone = dataclasses.replace(wanted, left_out=others)
            changed = trial.apply_patch(made, mutate.mutate(pod, alone).patch)
            if refusal := await self.find_refusal(trial.hide_from_webhook(changed)):
                refused[change] = refusal
        if refused and await self.find_refusal(trial.hide_from_webhook(made)):
            return {}
        return refused

    async def read_own_pod(self) -> types.Pod:
        """Return this charm's own pod, which Juju names after the unit."""
        name = self.settings.unit.replace("/", "-")
        found = await self.client.find(types.Pod, self.settings.model, name)
        return found or types.Pod()

    async def _make_replacement(self, replica: facts.Replica) -> dict[str, Any]:
        model = self.settings.model
        replaced = await self.client.get(types.Pod, model, replica.name)
        owner = trial.find_creator(replaced)
        if owner is None:
            raise errors.StatusError(404, message=f"nothing creates {replica.name} again")
        kind = _CREATORS[owner.kind]
        found = await self.client.request("GET", make_path(kind, model, owner.name))
        return trial.make_pod_of(owner.kind, types.decode_json(found, resources.Creator), replaced)

    async def _find_outage(
        self, workload: str, scope: eligible.Scope
    ) -> tuple[Reason | None, str]:
        """Tell whether the injector skips only this workload, or every pod of the model."""
        what = "a sidecar all the same" if scope.data_plane == "ambient" else "no sidecar"
        try:
            created = await self._create_pod(
                trial.make_generic_pod(scope, await self.read_own_pod())
            )
        except errors.StatusError as error:
            return _explain_refusal(error)
        if eligible.is_in_mesh(created, scope):
            return Reason.INJECTOR_SKIPS, f"the injector gives pods of {workload} {what}"
        return Reason.MESH_DOWN, f"the injector gives new pods of the model {what}"

    async def _create_pod(self, made: Mapping[str, Any]) -> types.Pod:
        where = make_path(types.Pod, self.settings.model)
        try:
            data = await self.client.request("POST", where, body=made, params={"dryRun": "All"})
        except errors.StatusError as error:
            prefix = made["metadata"].get("generateName", "")
            error.message = refusals.cut_generated(error.message, prefix)
            raise
        return types.decode_json(data, types.Pod)


def _explain_refusal(error: errors.StatusError) -> tuple[Reason | None, str]:
    """Return the reason and message: the pod is refused, or injector or API server are down."""
    refusal = refusals.read_refusal(error.code, error.message)
    if refusal is None:
        message = error.message or str(error)
        if error.code == 429 or error.code >= 500:
            return Reason.MESH_DOWN, f"pods can't be created now: {message}"
        return Reason.REPLACEMENT_REFUSED, f"the API refuses its next pod: {message}"
    if refusal.is_istio and refusal.is_unreachable:
        return Reason.MESH_DOWN, f"the injector does not answer: {refusal}"
    return Reason.REPLACEMENT_REFUSED, str(refusal)
