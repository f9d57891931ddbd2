"""Run the charm for one event, with a workload that has nothing to say."""

import json

from ops import testing

import charm


def run(event: str, model: str, *, units: int = 1, **options: str) -> testing.State:
    summary = {"eligible": 0, "in_mesh": 0, "converging": 0, "proposed": 0, "guarded": []}
    line = json.dumps({"summary": {**summary, "reported": 0, "settled_before_us": False}})
    answer = testing.Exec(("/usr/bin/sidecar-lifecycle", "uninjected"), stdout=line)
    container = testing.Container("lifecycle", can_connect=True, execs={answer})
    given = testing.State(
        leader=True,
        planned_units=units,
        containers={container},
        config=dict(options),
        model=testing.Model(model, type="kubernetes"),
    )
    ctx = testing.Context(charm.IstioIntegrator)
    return ctx.run(getattr(ctx.on, event)(), given)
