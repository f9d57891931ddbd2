"""The two clusters that matter, and the charms that are deployed on them."""

import dataclasses
from collections.abc import Mapping

from testbed import cluster, pack, paths
from testbed.kit import juju

BUILD = paths.SOURCE / "build" / "charms"
WEB = paths.SOURCE / "testbed" / "charms" / "webapp"


@dataclasses.dataclass(frozen=True)
class Kind:
    """Which of the two clusters that matter."""

    name: str
    description: str
    # Whether istiod injects native sidecars unless a pod says otherwise.
    native: bool
    # Options that the charm is deployed with.
    config: Mapping[str, str]

    @property
    def options(self) -> cluster.Options:
        """The switches of a testbed of this kind."""
        return cluster.Options(
            classic_sidecars=not self.native,
            extras=("training-operator",),
        )


KINDS = {
    "today": Kind(
        "today",
        "A cluster as most are today: classic sidecars.",
        native=False,
        # The testbed's kubelet could run native sidecars, as most clusters' kubelets can't yet.
        config={"job-sidecars": "classic"},
    ),
    "tomorrow": Kind(
        "tomorrow",
        "A cluster of tomorrow: native sidecars.",
        native=True,
        config={},
    ),
}


@dataclasses.dataclass(frozen=True)
class Charms:
    """What is deployed on a testbed."""

    integrator: juju.Deployable
    web: juju.Deployable
    # Reference of the image that jobs and the data server run.
    payload_image: str


def charms(kind: Kind, testbed: cluster.Testbed) -> Charms:
    """Pack the charms and load their images into a testbed that is up."""
    loaded = testbed.load_images(["app", "workload"])
    return Charms(
        integrator=juju.Deployable(
            pack.pack(paths.SOURCE, BUILD),
            {"lifecycle-image": loaded["workload"]},
            config=kind.config,
            trust=True,
        ),
        web=juju.Deployable(pack.pack(WEB, BUILD), {"web-image": loaded["app"]}),
        payload_image=loaded["app"],
    )
