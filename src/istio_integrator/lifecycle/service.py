"""The workload as a part of the charm: it runs on every unit and reports the model's progress."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex

import ops

from integrator_contract import rejections
from istio_integrator.component import Component
from istio_integrator.facts import Facts
from istio_integrator.kube import cluster
from istio_integrator.lifecycle import answers, settings
from istio_integrator.messages import Message, Template
from istio_integrator.situation import workload

PORT = 8080
"""The port of health and metrics."""
_LIVE = "live"
_READY = "ready"


def make_pebble_layer() -> ops.pebble.LayerDict:
    """Return the Pebble layer that runs the service.

    The checks have no level: Juju's probes read the levels, and the kubelet would kill the
    container when a restart of the service is enough. On an overloaded node even a live service
    answers late, and a restart would then lose the stops in progress: it has a minute.
    """
    command = (workload.PROGRAM, "run", "--settings", workload.SETTINGS, *workload.CONTRACT)
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
        "checks": {_LIVE: _make_check("livez", "9s", 6), _READY: _make_check("readyz", "3s", 3)},
    }


def _make_check(path: str, timeout: str, threshold: int) -> ops.pebble.CheckDict:
    return {
        "override": "replace",
        "period": "10s",
        "timeout": timeout,
        "threshold": threshold,
        "http": {"url": f"http://localhost:{PORT}/{path}"},
    }


class WorkloadService(Component):
    """The service that runs the workload on every unit, and the model's progress.

    `joined` tells whether the model's new pods join the mesh.
    """

    name = "lifecycle"

    def __init__(self, facts: Facts, *, joined: bool = False) -> None:
        super().__init__(facts)
        self._joined = joined and facts.mesh is not None
        self._client = facts.situation.workload
        self.progress = ""
        """The hash of the workload's summary; empty if unknown."""
        self.old_proxies: int | None = None
        """Pods whose proxy differs from a new pod's; None if unknown."""

    def reconcile(self) -> list[Message]:
        """Run the service with the current options, and report the model's progress."""
        facts, situation, said = self._facts, self._situation, list[Message]()
        if facts.contract_mismatch:
            return [facts.contract_mismatch]
        if facts.data_plane == "ambient":
            said.append(Template.DATA_PLANE(data_plane="ambient mode"))
        elif facts.mesh is not None:
            said.append(Template.DATA_PLANE(data_plane=facts.mesh.sidecars))
        told = self._client.read_settings()
        wanted = settings.make_settings(facts, told, joined=self._joined)
        if wanted != told:
            self._client.write_settings(wanted)
        with workload.translate_pebble_errors("lifecycle does not start"):
            self._client.container.add_layer(workload.SERVICE, make_pebble_layer(), combine=True)
            self._client.container.replan()
        with workload.translate_pebble_errors("waiting for Pebble in lifecycle"):
            check = self._client.container.get_checks(_READY).get(_READY)
        if check is not None and check.status is ops.pebble.CheckStatus.DOWN:
            return [*said, Template.SERVICE_NOT_READY()]
        if situation.leader:
            situation.manifests.add_owner_reference(cluster.CONFIG_MAP, self._memory_name)
        if not self._joined:
            return said
        summary = facts.uninjected.summary
        is_automatic = situation.config.restart_pods == "auto"
        self.progress, self.old_proxies = summary.word, summary.stale
        return [*said, *answers.report_progress(summary, facts, is_automatic=is_automatic)]

    def stop_convergence(self) -> None:
        """Stop replacing pods; a service that runs continues otherwise."""
        told = self._client.read_settings()
        if told and told.joined:
            self._client.write_settings(dataclasses.replace(told, joined=False))

    def stop(self) -> None:
        """Stop the service, if it runs."""
        # Juju stops the container anyway, and may have done so already.
        with contextlib.suppress(ops.pebble.Error, ops.ModelError, RuntimeError):
            self._client.container.stop(workload.SERVICE)

    def remove(self) -> None:
        """Stop the service and delete its state in the cluster."""
        self.stop()
        metadata = {"name": self._memory_name, "namespace": self._situation.model}
        kind = cluster.CONFIG_MAP
        self._situation.cluster.delete(
            {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
        )

    @property
    def _memory_name(self) -> str:
        return rejections.name_config_map(self._situation.application)
