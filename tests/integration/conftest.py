"""What the scenarios on a real Juju need: a bootstrapped controller on a cluster with Istio.

`CHARM` is the packed charm (default: build/istio-integrator.charm), `LIFECYCLE_IMAGE` its image in
a registry that the cluster reaches.
"""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="session")
def charm() -> pathlib.Path:
    """The packed charm."""
    path = pathlib.Path(os.environ.get("CHARM", ROOT / "build" / "istio-integrator.charm"))
    if not path.exists():
        pytest.fail(f"{path} is missing: run make pack, or set CHARM")
    return path.resolve()


@pytest.fixture(scope="session")
def resources() -> dict[str, str]:
    """The charm's image."""
    image = os.environ.get("LIFECYCLE_IMAGE", "")
    if not image:
        pytest.fail("set LIFECYCLE_IMAGE to the packed rock in a registry of the cluster")
    return {"lifecycle-image": image}
