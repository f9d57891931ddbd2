"""The workload's metrics."""

import asyncio
import collections
import contextlib

from prometheus_client import parser

from testbed import kubernetes
from testbed.kit import juju

STARTED = "process_start_time_seconds"


def read(text):
    """The values by name without the common prefix, summed over their labels."""
    values = collections.defaultdict(float)
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            values[sample.name.removeprefix("sidecar_lifecycle_")] += sample.value
    return dict(values)


async def of_unit(api, model, unit=0):
    """Ask the workload in a unit's pod."""
    pod = f"{juju.APPLICATION}-{unit}:8080"
    path = f"/api/v1/namespaces/{model}/pods/{pod}/proxy/metrics"
    return read(await api.request("GET", path, accept="text/plain"))


class Growth:
    """By how much each metric grew since the first look, as Prometheus counts it.

    The kubelet restarts the container on a node that is too busy for it to answer, and its
    counters begin again: only what was counted between the last look and the restart is lost.
    """

    def __init__(self, now):
        self.now = now
        self.grown = collections.Counter()
        self.restarts = 0

    def look(self, now):
        """Add what was counted since the last look."""
        before, self.now = self.now, now
        if now[STARTED] != before[STARTED]:
            self.restarts, before = self.restarts + 1, {}
        self.grown.update({name: value - before.get(name, 0) for name, value in now.items()})


@contextlib.asynccontextmanager
async def growing(api, model):
    """Look at the workload's metrics each second while the block runs."""
    growth = Growth(await of_unit(api, model))

    async def watch():
        while True:
            await asyncio.sleep(1)
            with contextlib.suppress(kubernetes.ApiError, TimeoutError):
                growth.look(await of_unit(api, model))

    watching = asyncio.create_task(watch())
    try:
        yield growth
    finally:
        watching.cancel()
