"""Start the testbed for a demo or an end-to-end run, and pack the charms that it deploys."""

import pathlib
from collections.abc import Callable

from demo import stage, steps
from testbed import cluster, images

ROOT = pathlib.Path(__file__).parents[1]
WEB = ROOT / "demo" / "charms" / "webapp"

Progress = Callable[[str], None]


def options(kind: stage.Kind) -> cluster.Options:
    """The switches that make one of the two clusters."""
    return cluster.Options(
        classic_sidecars=not kind.native,
        disable_policy_api=kind.backend == "webhook",
        extras=("training-operator",),
    )


def charms(folder: pathlib.Path) -> steps.Charms:
    """Pack the charms and name their images."""
    from testbed.juju import pack  # noqa: PLC0415

    return steps.Charms(
        integrator=steps.Deployable(
            pack.pack(ROOT, folder / "istio-integrator.charm"),
            ("--trust", "--resource", f"lifecycle-image={images.reference('workload')}"),
        ),
        web=steps.Deployable(
            pack.pack(WEB, folder / "webapp.charm"),
            ("--resource", f"web-image={images.reference('app')}"),
        ),
    )
