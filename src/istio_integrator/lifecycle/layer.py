"""The Pebble layer of the workload container: its service and the checks of it; pure."""

from __future__ import annotations

import shlex

import ops

from integrator_contract import schema
from istio_integrator.lifecycle import settings

SERVICE = "lifecycle"
LIVE = "live"
READY = "ready"
PORT = 8080
"""The port of health and metrics."""
PROGRAM = "/usr/bin/sidecar-lifecycle"
CONTRACT = ("--contract", schema.SCHEMA)


def pebble_layer() -> ops.pebble.LayerDict:
    """Write the Pebble layer that runs the service.

    The checks have no level: Juju's probes read the levels, and the kubelet would kill the
    container where restarting the service is enough. On a starved node even a live service
    answers late, and to restart it then would lose the stops under way.
    """
    return {
        "summary": "sidecar lifecycle",
        "services": {
            SERVICE: {
                "override": "replace",
                "summary": "stops finished proxies, brings pods into the mesh",
                "command": shlex.join((PROGRAM, "run", "--settings", settings.FILE, *CONTRACT)),
                "startup": "enabled",
                "on-check-failure": {LIVE: "restart"},
            }
        },
        "checks": {
            LIVE: {
                "override": "replace",
                "period": "10s",
                "timeout": "9s",
                "threshold": 3,
                "http": {"url": f"http://localhost:{PORT}/livez"},
            },
            READY: {
                "override": "replace",
                "period": "10s",
                "timeout": "3s",
                "threshold": 3,
                "http": {"url": f"http://localhost:{PORT}/readyz"},
            },
        },
    }
