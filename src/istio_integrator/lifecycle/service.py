"""The workload as a part of the charm: it runs on every unit, and says how far the model is."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import ops

from integrator_contract import rejections
from integrator_contract.seen import Seen
from istio_integrator import parts
from istio_integrator.kube import cluster, errors
from istio_integrator.lifecycle import (
    answers,
    image,
    layer,
    removal_notice,
    settings,
    workload,
)
from istio_integrator.messages import Message, Said

logger = logging.getLogger(__name__)


class Lifecycle(parts.Part):
    """The service that runs the workload on every unit, and its progress with the model.

    Args:
        context: With the mesh that was found.
        container: The workload's.
        joined: Tells whether the model is asked to join that mesh, once membership is decided.
    """

    name = "lifecycle"

    def __init__(
        self, context: parts.Context, container: ops.Container, joined: Callable[[], bool]
    ) -> None:
        self.image = image.Image(context, container)
        self._container = container
        self._context = context
        self._workload = workload.Workload(container)
        self._joined = joined
        self.progress = ""
        """The word of the workload's summary; empty where it has not said."""
        self.old_proxies: int | None = None
        """Pods whose proxy is not what new pods get; None where the workload has not said."""

    @property
    def workload(self) -> workload.Workload:
        """The program itself, to be asked about pods.

        Raises:
            LifecycleError: It is of another contract than the charm.
        """
        if problem := self.image.mismatch:
            raise errors.LifecycleError(problem.text)
        return self._workload

    def reconcile(self) -> list[Message]:
        """Have the service run with the options as they are, and ask how far the model is.

        Returns:
            What pods get, and how far the model is or what is in the way.
        """
        said: list[Message] = []
        if self._context.data_plane == "ambient":
            said.append(Said.DATA_PLANE(data_plane="ambient mode"))
        elif self._context.mesh is not None:
            said.append(Said.DATA_PLANE(data_plane=self._context.mesh.sidecars))
        return [*said, *self._run()]

    def _run(self) -> list[Message]:
        if not self._container.can_connect():
            return [Said.CONTAINER_STARTING()]
        if problem := self.image.mismatch:
            return [problem]
        joined = self._joined() and self._context.mesh is not None
        if problem := self._replan(joined=joined) or self._not_ready():
            return [problem]
        if self._context.leader:
            self._context.manifests.tie(cluster.CONFIG_MAP, self._memory)
        if not joined:
            return []
        try:
            summary = self._workload.uninjected().summary
        except errors.LifecycleError as error:
            logger.warning("%s", error)
            return [Said.SERVICE_SILENT(problem=str(error)[:120])]
        self.progress, self.old_proxies = summary.word, summary.stale
        progress = answers.progress(
            summary,
            application=self._context.application,
            model=self._context.model,
            is_automatic=self._context.config.restart_pods == "auto",
        )
        return [*map(self._shown, progress)]

    def seen(self) -> Seen | None:
        """Return what the gateway's Envoys have; None where the service does not answer."""
        try:
            return self.workload.seen()
        except errors.LifecycleError as error:
            logger.warning("%s", error)
            return None

    def _shown(self, message: Message) -> Message:
        """Call replacing what it is where no successor would be created: it waits for istiod.

        Juju shows maintenance before waiting, and so would hide that istiod is away.
        """
        mesh = self._context.mesh
        if message.said is Said.PODS_BEING_REPLACED and mesh is not None and not mesh.alive:
            return dataclasses.replace(message, said=Said.PODS_WAIT_FOR_ISTIOD)
        return message

    def stop_convergence(self) -> None:
        """Let no pod be replaced any more; the reconciler goes on."""
        if self.image.fits:
            self._replan(joined=False)

    def give_notice(self) -> None:
        """Tell the owners of unfinished pods that their proxies will not be stopped."""
        removal_notice.leave(self._context, self._workload)

    def stop(self) -> None:
        """Stop the service, if it runs."""
        try:
            self._container.stop(layer.SERVICE)
        except (ops.pebble.Error, ops.ModelError, RuntimeError) as error:
            # Juju stops the container anyway, and may have done so already.
            logger.debug("The service is not stopped: %s", error)

    def remove(self) -> None:
        """Stop the service and delete what it keeps in the cluster."""
        self.stop()
        metadata = {"name": self._memory, "namespace": self._context.model}
        kind = cluster.CONFIG_MAP
        self._context.cluster.delete(
            {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
        )

    @property
    def _memory(self) -> str:
        """The name of the ConfigMap that the service keeps in the cluster."""
        return rejections.config_map(self._context.application)

    def _replan(self, *, joined: bool) -> Message | None:
        """Start the service, or return why it does not start."""
        told = settings.read(self._container)
        made = settings.make(self._context, told, joined=joined)
        try:
            settings.write(self._container, made, told)
            self._container.add_layer(layer.SERVICE, layer.pebble_layer(), combine=True)
            self._container.replan()
        except (ops.pebble.Error, TimeoutError) as error:
            logger.warning("The lifecycle service does not start: %s", error)
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            return Said.SERVICE_NOT_STARTED(problem=first[:100])
        return None

    def _not_ready(self) -> Message | None:
        try:
            check = self._container.get_checks(layer.READY).get(layer.READY)
        except (ops.pebble.Error, TimeoutError) as error:
            logger.warning("Whether the lifecycle service is ready: %s", error)
            return Said.PEBBLE_SILENT()
        if check is not None and check.status is ops.pebble.CheckStatus.DOWN:
            return Said.SERVICE_NOT_READY()
        return None
