"""What a unit's pod may use: the options `cpu` and `memory`, on the StatefulSet that Juju made.

Juju patches it by strategic merge and says nothing of CPU and memory but its constraints
(juju/juju internal/provider/kubernetes/resources/statefulset.go), so what is applied beside them
stays. The memory of the container that hooks run in Juju sets itself, and it is left to it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import ops

from integrator_contract import names
from istio_integrator import parts
from istio_integrator.config import config, quantities
from istio_integrator.kube import cluster, errors, manifests
from istio_integrator.lifecycle import workload

logger = logging.getLogger(__name__)

_CHARM = "charm"
"""The container that hooks run in."""
_KEPT_CPU = "250m"
_KEPT_MEMORY = "200Mi"
"""Of what may be used, the most that is requested, as Canonical's observability charms do it."""
_REFUSALS = (400, 403, 422)
"""By a webhook, by quota and limits, by the object's own rules."""

Requirements = Mapping[str, cluster.Object]
"""The `resources` of containers, by their names."""


def requirements(options: config.Config) -> Requirements:
    """Decide what each container requests and is limited to, of what the options speak of.

    A hook is short and has somebody wait for it: it gets a share of a full node, and no limit.
    """
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    if options.cpu:
        limits["cpu"] = options.cpu
        requests["cpu"] = min(options.cpu, _KEPT_CPU, key=quantities.thousandths)
    if options.memory:
        limits["memory"] = options.memory
        requests["memory"] = min(options.memory, _KEPT_MEMORY, key=quantities.size)
    wanted: dict[str, cluster.Object] = {}
    if limits:
        wanted[workload.CONTAINER] = {"limits": limits, "requests": requests}
    if options.cpu:
        wanted[_CHARM] = {"requests": {"cpu": requests["cpu"]}}
    return wanted


class Resources:
    """Keeps requests and limits on the application's StatefulSet, once an option asks for them.

    Each change of them has Kubernetes replace the application's pods, so it comes last in a hook.
    """

    def __init__(self, context: parts.Context) -> None:
        self._context = context
        self._problem = ""

    def reconcile(self) -> None:
        """Apply what the options say, and take back what they said before."""
        self._problem = ""
        context, kind = self._context, cluster.STATEFUL_SET
        if not context.leader:
            return
        asked = self._asked
        live = context.cluster.get(kind, context.application, context.model)
        applied = cluster.at(live, "metadata", "annotations").get(names.RESOURCES, "")
        wanted = requirements(context.config)
        if not asked and not applied:
            return
        if live is not None and (applied != asked or not _has(live, wanted)):
            self._apply(live, wanted)

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say why the pods don't get what the options say."""
        if self._problem:
            yield ops.BlockedStatus(self._problem)

    @property
    def _asked(self) -> str:
        """What the options say, in words; empty where they say nothing."""
        options = self._context.config
        pairs = (("cpu", options.cpu), ("memory", options.memory))
        return ",".join(f"{name}={value}" for name, value in pairs if value)

    def _apply(self, live: cluster.Object, wanted: Requirements) -> None:
        application, api = self._context.application, self._context.cluster
        metadata = {"name": application, "namespace": self._context.model}
        obj: cluster.Object = {
            "apiVersion": cluster.STATEFUL_SET.api_version,
            "kind": cluster.STATEFUL_SET.name,
            "metadata": metadata,
        }
        if wanted:
            metadata = {**metadata, "annotations": {names.RESOURCES: self._asked}}
            # In another order they would be moved, which replaces pods, too.
            order = (str(each.get("name")) for each in _containers(live))
            containers = [{"name": n, "resources": wanted[n]} for n in order if n in wanted]
            template = {"template": {"spec": {"containers": containers}}}
            obj = {**obj, "metadata": metadata, "spec": template}
        if wanted and not self._may_be(_next_pod(live, wanted)):
            return
        try:
            api.apply(obj, force=False)
        except errors.ConflictError as error:
            logger.warning("%s", error)
            self._problem = (
                f"{self._asked}: constraints set it too; "
                f"run: juju config {application} cpu= memory=; or clear the constraints"
            )
        else:
            logger.info("The unit's pods get %s.", self._asked or "what Juju gives them")

    def _may_be(self, pod: cluster.Object) -> bool:
        """Ask whether a pod would be created: Kubernetes ends the one before it first."""
        try:
            self._context.cluster.create(pod, dry_run=True)
        except errors.ForbiddenError:
            raise
        except errors.ApiError as error:
            if error.code not in _REFUSALS:
                raise
            said = error.refusal if isinstance(error, errors.RefusedError) else error.message
            self._problem = f"{self._asked}: a pod with this value is rejected: {said}"[:300]
        return not self._problem


def _has(live: cluster.Object, wanted: Requirements) -> bool:
    found = {each.get("name"): each.get("resources") for each in _containers(live)}
    return all(manifests.is_current(found.get(name), each) for name, each in wanted.items())


def _containers(live: cluster.Object) -> list[cluster.Object]:
    return cluster.parts(cluster.at(live, "spec", "template", "spec"), "containers")


def _next_pod(live: cluster.Object, wanted: Requirements) -> cluster.Object:
    """Write the pod that would be created next."""
    template = cluster.at(live, "spec", "template")
    metadata = live["metadata"]
    containers: list[Any] = [
        {**each, "resources": _merged(each, wanted.get(str(each.get("name")), {}))}
        for each in _containers(live)
    ]
    return {
        "apiVersion": cluster.POD.api_version,
        "kind": cluster.POD.name,
        "metadata": {
            **cluster.at(template, "metadata"),
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
        },
        "spec": {**cluster.at(template, "spec"), "containers": containers},
    }


def _merged(container: cluster.Object, more: cluster.Object) -> cluster.Object:
    own = cluster.at(container, "resources")
    both = {key: {**cluster.at(own, key), **cluster.at(more, key)} for key in {*own, *more}}
    return {key: each for key, each in both.items() if each}
