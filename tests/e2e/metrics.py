"""The workload's metrics."""

import collections

from prometheus_client import parser

from testbed.kit import juju


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
