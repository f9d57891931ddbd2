"""What README.md and the page of Istio's versions claim, made of what the tests run on."""

from __future__ import annotations

import pathlib
import re

import tables
import yaml

_DECIDED = {"before 1.27": False, "1.27 and newer": True}
"""Rows of that page, by whether sidecars are native without being asked for."""
_ON_A_NODE = "test_main_job_and_guard_hold_on_a_node_with_the_profile"
_ANNOTATION_SINCE = "1.24"
"""The first Istio in which a pod may ask for a native sidecar."""
_VERSION = re.compile(r"=v?(\d+\.\d+\.\d+)")


def table(root: pathlib.Path) -> str:
    """Write which versions were tried, and which are expected to work.

    Args:
        root: Of the checkout.
    """
    # They need the project on the path.
    from juju_standin.controller import state  # noqa: PLC0415
    from testbed import options  # noqa: PLC0415
    from tests import profiles  # noqa: PLC0415

    tried = f"{min(profiles.NATIVE)} to {max(profiles.NATIVE)}"
    juju = next(
        str(each["juju"]) if isinstance(each, dict) else str(each)
        for each in yaml.safe_load((root / "metadata.yaml").read_text())["assumes"]
        if "juju" in str(each)
    )
    older = " and ".join(reversed(options.OLDER))
    return tables.table(
        ("", "tried", "expected"),
        [
            (
                "Kubernetes",
                f"{pinned('kubernetes')}, a node and its control plane. Of {older} the API server",
                "1.29 and newer: the webhook, and native sidecars where kubelets have them",
            ),
            (
                "Istio",
                f"{pinned('istio')}, and compatibility profiles {tried} on a node",
                f"{_ANNOTATION_SINCE} and newer. [What differs](docs/reference/istio-versions.md)",
            ),
            (
                "Juju",
                f"4.0.15, once by hand. Otherwise a stand-in that follows {state.JUJU_VERSION}",
                juju.removeprefix("juju >= ") + " and newer",
            ),
        ],
    )


def istio_versions(root: pathlib.Path) -> str:
    """Return docs/reference/istio-versions.md with the profiles that were tried.

    Args:
        root: Of the checkout.
    """
    from tests import profiles  # noqa: PLC0415

    text = (root / "docs/reference/istio-versions.md").read_text()
    for row, native in _DECIDED.items():
        found = [line for line, is_native in profiles.NATIVE.items() if is_native == native]
        own = f"on {pinned('istio').rpartition('.')[0]} and " if native else ""
        claim = f"tried {own}with profiles {found[0]} to {found[-1]}: `{_ON_A_NODE}`"
        cells = rf"^(\| {re.escape(row)} \|.*\| )[^|]*( \|)$"
        text = re.sub(cells, rf"\g<1>{claim}\2", text, flags=re.MULTILINE)
    return text


def pinned(product: str) -> str:
    """Return the version that the testbed builds a product of.

    Args:
        product: Of testbed/programs.py.
    """
    from testbed import programs  # noqa: PLC0415

    return _VERSION.findall(programs.PRODUCTS[product].stamp)[0]
