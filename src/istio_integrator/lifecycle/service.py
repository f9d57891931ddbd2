"""The workload as a part of the charm: it runs on every unit and reports the model's progress."""

from __future__ import annotations

import contextlib
import functools
import logging
import shlex
from collections.abc import Callable

import ops

from integrator_contract import rejections, schema
from integrator_contract.seen import Seen
from istio_integrator import error_messages
from istio_integrator.kube import cluster, errors
from istio_integrator.lifecycle import answers, settings, workload
from istio_integrator.messages import Message, Said
from istio_integrator.situation.situation import Component, Situation

logger = logging.getLogger(__name__)

PORT = 8080
"""The port of health and metrics."""
_LIVE = "live"
_READY = "ready"


def pebble_layer() -> ops.pebble.LayerDict:
    """Return the Pebble layer that runs the service.

    The checks have no level: Juju's probes read the levels, and the kubelet would kill the
    container when a restart of the service is enough. On an overloaded node even a live service
    answers late, and a restart would then lose the stops in progress: it has a minute.
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
        "checks": {_LIVE: _check("livez", "9s", 6), _READY: _check("readyz", "3s", 3)},
    }


def _check(path: str, timeout: str, threshold: int) -> ops.pebble.CheckDict:
    return {
        "override": "replace",
        "period": "10s",
        "timeout": timeout,
        "threshold": threshold,
        "http": {"url": f"http://localhost:{PORT}/{path}"},
    }


class WorkloadService(Component):
    """The service that runs the workload on every unit, and the model's progress.

    `joined` tells whether the model joins the mesh, once the membership is decided.
    """

    name = "lifecycle"

    def __init__(
        self, situation: Situation, container: ops.Container, joined: Callable[[], bool]
    ) -> None:
        self._container = container
        self._situation = situation
        self._workload = workload.WorkloadClient(container)
        self._joined = joined
        self.progress = ""
        """The hash of the workload's summary; empty if unknown."""
        self.old_proxies: int | None = None
        """Pods whose proxy differs from a new pod's; None if unknown."""

    @property
    def workload(self) -> workload.WorkloadClient:
        """The client of the workload; raises LifecycleError if the contract differs."""
        if self._mismatch:
            raise errors.LifecycleError(self._mismatch.text)
        return self._workload

    def image(self) -> str:
        """Return the workload's image for other pods; empty until its contract matches."""
        if self._mismatch:
            return ""
        pod = self._situation.cluster.get(cluster.POD, self._situation.pod, self._situation.model)
        containers = cluster.parts(cluster.at(pod, "spec"), "containers")
        found = (each for each in containers if each.get("name") == workload.CONTAINER)
        return str(next(found, cluster.Object()).get("image", ""))

    @functools.cached_property
    def _mismatch(self) -> Message | None:
        """The message if this charm and the image cannot work together yet.

        The charm neither starts nor stops a service whose image has another contract.
        """
        if not self._container.can_connect():
            return Said.CONTAINER_STARTING()
        application = self._situation.application
        try:
            contract = self._workload.contract()
        except errors.LifecycleError as error:
            return error_messages.of_error(error, application=application)
        if contract == schema.SCHEMA:
            return None
        contracts = f"contract {contract or 'none'}, here {schema.SCHEMA}"
        return Said.IMAGE_DOES_NOT_FIT(application=application, contracts=contracts)

    def reconcile(self) -> list[Message]:
        """Run the service with the current options, and report the model's progress."""
        if self._mismatch:
            return [self._mismatch]
        said: list[Message] = []
        if self._situation.data_plane == "ambient":
            said.append(Said.DATA_PLANE(data_plane="ambient mode"))
        elif self._situation.mesh is not None:
            said.append(Said.DATA_PLANE(data_plane=self._situation.mesh.sidecars))
        joined = self._joined() and self._situation.mesh is not None
        self._replan(joined=joined)
        with settings.pebble("waiting for Pebble in lifecycle"):
            check = self._container.get_checks(_READY).get(_READY)
        if check is not None and check.status is ops.pebble.CheckStatus.DOWN:
            return [*said, Said.SERVICE_NOT_READY()]
        if self._situation.leader:
            self._situation.manifests.tie(cluster.CONFIG_MAP, self._memory)
        if not joined:
            return said
        summary = self._workload.uninjected().summary
        self.progress, self.old_proxies = summary.word, summary.stale
        is_automatic = self._situation.config.restart_pods == "auto"
        return [*said, *answers.progress(summary, self._situation, is_automatic=is_automatic)]

    def seen(self) -> Seen | None:
        """Return the configuration of the gateway's Envoys; None without an answer."""
        try:
            return self.workload.seen()
        except errors.LifecycleError as error:
            logger.warning("%s", error)
            return None

    @property
    def is_running(self) -> bool:
        """Whether the service runs, as far as Pebble answers."""
        with contextlib.suppress(ops.pebble.Error, ops.ModelError, RuntimeError):
            return self._container.get_service(workload.SERVICE).is_running()
        return False

    def stop_convergence(self) -> None:
        """Stop replacing pods; a service that runs continues otherwise."""
        if not self._mismatch:
            self._tell(joined=False)

    def stop(self) -> None:
        """Stop the service, if it runs."""
        # Juju stops the container anyway, and may have done so already.
        with contextlib.suppress(ops.pebble.Error, ops.ModelError, RuntimeError):
            self._container.stop(workload.SERVICE)

    def remove(self) -> None:
        """Stop the service and delete its state in the cluster."""
        self.stop()
        metadata = {"name": self._memory, "namespace": self._situation.model}
        kind = cluster.CONFIG_MAP
        self._situation.cluster.delete(
            {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
        )

    @property
    def _memory(self) -> str:
        return rejections.config_map(self._situation.application)

    def _tell(self, *, joined: bool) -> None:
        told = settings.read(self._container)
        settings.write(self._container, settings.make(self._situation, told, joined=joined), told)

    def _replan(self, *, joined: bool) -> None:
        self._tell(joined=joined)
        with settings.pebble("lifecycle does not start"):
            self._container.add_layer(workload.SERVICE, pebble_layer(), combine=True)
            self._container.replan()
