"""Whether new pods are prepared, asked again and again by pods that are never created.

Our admission fails open: when it does nothing, nothing else says so.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import prometheus_client
import structlog

from integrator_contract import names
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.kube import client, errors

log = structlog.get_logger(__name__)

BACKENDS = ("policy", "webhook")
PERIOD = 60.0
"""Seconds between two questions: an alert waits for minutes anyway."""


class Leadership(Protocol):
    """Whether we are the one who acts."""

    @property
    def is_leader(self) -> bool:
        """Whether we lead right now."""
        ...


class Metrics:
    """What the answers were."""

    def __init__(self, registry: prometheus_client.CollectorRegistry) -> None:
        self.answers = prometheus_client.Gauge(
            "sidecar_lifecycle_admission_answers",
            "1 where a dry-run pod came back prepared by this backend, 0 where not; asked every"
            " minute by the unit that acts. One of the two is enough.",
            ["backend"],
            registry=registry,
        )


def pod(backend: str) -> dict[str, Any]:
    """Write the pod that asks one backend; it would run under every pod security standard."""
    container = {
        "name": "probe",
        "image": "never-created.invalid/probe",
        # Legal, and more than the policies of Kubernetes 1.34 can take.
        "env": [{"name": "TWICE", "value": "1"}, {"name": "TWICE", "value": "2"}],
        "resources": {
            "requests": {"cpu": "1m", "memory": "1Mi"},
            "limits": {"cpu": "1m", "memory": "1Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "istio-integrator-probe-",
            # An injector that is down would refuse it.
            "labels": {names.PROBE: backend, names.INJECT: "false"},
        },
        "spec": {"automountServiceAccountToken": False, "containers": [container]},
    }


async def ask(connection: client.Client, model: str, backend: str) -> bool:
    """Tell whether a backend prepares pods.

    Raises:
        KubeError: There is no answer, or it is one about us.
    """
    data = await connection.request(
        "POST", client.path(types.Pod, model), body=pod(backend), params={"dryRun": "All"}
    )
    return names.SETTINGS in client.answer(data, types.Pod).metadata.annotations


async def run(
    connection: client.Client,
    model: str,
    leadership: Leadership,
    *,
    registry: prometheus_client.CollectorRegistry,
) -> None:
    """Ask while we lead, until cancelled."""
    figures = Metrics(registry)
    while True:
        if not leadership.is_leader:
            figures.answers.clear()
        else:
            for backend in BACKENDS:
                try:
                    answers = await ask(connection, model, backend)
                except errors.KubeError as error:
                    # What is not known is neither good nor bad.
                    log.warning("admission can't be asked", backend=backend, error=str(error))
                    figures.answers.clear()
                    break
                figures.answers.labels(backend).set(answers)
        await asyncio.sleep(PERIOD if leadership.is_leader else 1)
