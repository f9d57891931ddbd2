"""The workload as a part of the charm: it runs on every unit, and says how far the model is."""

from __future__ import annotations

import dataclasses
import functools
import logging
import shlex
from collections.abc import Callable

import ops

from integrator_contract import rejections
from integrator_contract.seen import Seen
from istio_integrator.kube import cluster, errors
from istio_integrator.lifecycle import answers, removal_notice, settings, workload
from istio_integrator.messages import Message, Said, Severity
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)

PORT = 8080
"""The port of health and metrics."""
_LIVE = "live"
_READY = "ready"


def pebble_layer() -> ops.pebble.LayerDict:
    """Write the Pebble layer that runs the service.

    The checks have no level: Juju's probes read the levels, and the kubelet would kill the
    container where restarting the service is enough. On a starved node even a live service
    answers late, and to restart it then would lose the stops under way.
    """
    command = (workload.PROGRAM, "run", "--settings", settings.FILE, *workload.CONTRACT)
    return {
        "summary": "sidecar lifecycle",
        "services": {
            workload.SERVICE: {
                "override": "replace",
                "summary": "stops finished proxies, brings pods into the mesh",
                "command": shlex.join(command),
                "startup": "enabled",
                "on-check-failure": {_LIVE: "restart"},
            }
        },
        "checks": {_LIVE: _check("livez", "9s"), _READY: _check("readyz", "3s")},
    }


def _check(path: str, timeout: str) -> ops.pebble.CheckDict:
    return {
        "override": "replace",
        "period": "10s",
        "timeout": timeout,
        "threshold": 3,
        "http": {"url": f"http://localhost:{PORT}/{path}"},
    }


class Lifecycle(situation.Component):
    """The service that runs the workload on every unit, and its progress with the model.

    `joined` tells whether the model is asked to join the mesh, once membership is decided.
    """

    name = "lifecycle"

    def __init__(
        self, context: situation.Situation, container: ops.Container, joined: Callable[[], bool]
    ) -> None:
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
        """The program, to be asked about pods; a LifecycleError for one of another contract."""
        if self._mismatch:
            raise errors.LifecycleError(self._mismatch.text)
        return self._workload

    def image(self) -> str:
        """Return the workload's image for other pods; empty while it is not known to fit."""
        return workload.image(self._context) if self._fits else ""

    @property
    def _fits(self) -> bool:
        return self._container.can_connect() and self._mismatch is None

    @functools.cached_property
    def _mismatch(self) -> Message | None:
        """What is to be done about the image first; None where the container can't be asked."""
        if not self._container.can_connect():
            return None
        return workload.mismatch(self._workload, application=self._context.application)

    def reconcile(self) -> list[Message]:
        """Have the service run with the options as they are, and ask how far the model is."""
        said: list[Message] = []
        if self._context.data_plane == "ambient":
            said.append(Said.DATA_PLANE(data_plane="ambient mode"))
        elif self._context.mesh is not None:
            said.append(Said.DATA_PLANE(data_plane=self._context.mesh.sidecars))
        return [*said, *self._run()]

    def _run(self) -> list[Message]:
        if not self._container.can_connect():
            return [Said.CONTAINER_STARTING()]
        if self._mismatch:
            return [self._mismatch]
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
            return dataclasses.replace(message, severity=Severity.WAITING)
        return message

    def stop_convergence(self) -> None:
        """Let no pod be replaced any more; the reconciler goes on."""
        if self._fits:
            self._replan(joined=False)

    def give_notice(self) -> None:
        """Tell the owners of unfinished pods that their proxies will not be stopped."""
        removal_notice.leave(self._context, self._workload)

    def stop(self) -> None:
        """Stop the service, if it runs."""
        try:
            self._container.stop(workload.SERVICE)
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
            self._container.add_layer(workload.SERVICE, pebble_layer(), combine=True)
            self._container.replan()
        except (ops.pebble.Error, TimeoutError) as error:
            logger.warning("The lifecycle service does not start: %s", error)
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            return Said.SERVICE_NOT_STARTED(problem=first[:100])
        return None

    def _not_ready(self) -> Message | None:
        try:
            check = self._container.get_checks(_READY).get(_READY)
        except (ops.pebble.Error, TimeoutError) as error:
            logger.warning("Whether the lifecycle service is ready: %s", error)
            return Said.PEBBLE_SILENT()
        if check is not None and check.status is ops.pebble.CheckStatus.DOWN:
            return Said.SERVICE_NOT_READY()
        return None
