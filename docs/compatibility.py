"""What README.md claims of versions, made of the pins that the tests run on."""

from __future__ import annotations

import pathlib
import re

import tables
import yaml

_VERSION = re.compile(r"=v?(\d+\.\d+\.\d+)")


def table(root: pathlib.Path) -> str:
    """Write which versions were tried, and which are expected to work.

    Args:
        root: Of the checkout.
    """
    # They need the project on the path.
    from istio_integrator.diagnosis.checks import versions  # noqa: PLC0415
    from testbed import options  # noqa: PLC0415
    from testbed.juju.controller import state  # noqa: PLC0415

    juju = next(
        str(each["juju"]) if isinstance(each, dict) else str(each)
        for each in yaml.safe_load((root / "metadata.yaml").read_text())["assumes"]
        if "juju" in str(each)
    )
    older = " and ".join(reversed(options.OLDER))
    annotation = ".".join(map(str, versions.ANNOTATION_SINCE))
    return tables.table(
        ("", "tried", "expected"),
        [
            (
                "Kubernetes",
                f"{pinned('kubernetes')}, a node and its control plane; of {older} the API server",
                "1.29 and newer: the webhook, and native sidecars where kubelets have them",
            ),
            (
                "Istio",
                f"{pinned('istio')}, and its compatibility profiles of older lines",
                f"{annotation} and newer; [what differs](docs/reference/istio-versions.md)",
            ),
            (
                "Juju",
                f"none; a stand-in that follows {state.JUJU_VERSION}",
                juju.removeprefix("juju >= ") + " and newer, by the scenarios of"
                " `tests/integration`",
            ),
        ],
    )


def pinned(product: str) -> str:
    """Return the version that the testbed builds a product of.

    Args:
        product: Of testbed/programs.py.
    """
    from testbed import programs  # noqa: PLC0415

    return _VERSION.findall(programs.PRODUCTS[product].stamp)[0]
