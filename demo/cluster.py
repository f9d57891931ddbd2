"""Start the testbed for a demo or an end-to-end run, and pack the charms that it deploys."""

import pathlib

from demo import juju, stage, steps
from testbed import cluster
from testbed.juju import pack

ROOT = pathlib.Path(__file__).parents[1]
BUILD = ROOT / "build" / "charms"
WEB = ROOT / "demo" / "charms" / "webapp"


def options(kind: stage.Kind) -> cluster.Options:
    """The switches that make one of the two clusters."""
    return cluster.Options(
        classic_sidecars=not kind.native,
        disable_policy_api=kind.backend == "webhook",
        extras=("training-operator",),
    )


def charms(kind: stage.Kind, testbed: cluster.Testbed) -> steps.Charms:
    """Pack the charms and load their images into a testbed that is up."""
    loaded = testbed.load_images(["app", "workload"])
    return steps.Charms(
        integrator=juju.Deployable(
            pack.pack(ROOT, BUILD),
            {"lifecycle-image": loaded["workload"]},
            config=kind.config,
            trust=True,
        ),
        web=juju.Deployable(pack.pack(WEB, BUILD), {"web-image": loaded["app"]}),
        payload_image=loaded["app"],
    )
