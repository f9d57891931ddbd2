"""The page of Istio's installations, made of the rows that a functional test runs."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import tables
import yaml

ROWS = "tests/functional/installations.yaml"
_COLUMNS = ("installation", "label of the model", "what is found", "to know")


def page(root: pathlib.Path) -> str:
    """Write docs/reference/istio-installations.md.

    Args:
        root: Of the checkout.
    """
    rows: Mapping[str, dict[str, Any]] = yaml.safe_load((root / ROWS).read_text())
    table = tables.table(_COLUMNS, map(_cells, rows.values()))
    return _PAGE.format(rows=ROWS, table=table)


_PAGE = """# Installations of Istio

This table shows what the charm finds for each way to install Istio, and what you need to set. A
test writes the objects of each row (`{rows}`) into a real
kube-apiserver with a real istiod, and the charm joins and leaves. No cloud or operator is used.

{table}
The charm does not need the trust domain: its policies name `cluster.local`, which istiod reads as
its own.
"""


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ((key, value),) = row["joins"].items()
    return (
        row["title"],
        f"`{key}={value}`",
        ", ".join(_found(row)),
        ". ".join(_to_know(row)),
    )


_MEANINGS: Mapping[tuple[str, Any], str] = {
    ("native_proxy", True): "native sidecars for all",
    ("native_proxy", False): "classic sidecars",
    ("cni", True): "the CNI plugin",
    ("captures_outbound", False): "proxies see no outgoing calls",
    ("registry_only", True): "calls to unknown hosts are blocked",
    ("hold_by_default", True): "applications are held already",
    ("namespace", ""): "injector by URL",
}
"""What facts of the mesh mean; the others are said by the status, or are what is usual."""
_NAMED = {
    "root_namespace": "root namespace",
    "proxy_revision": "proxies of revision",
    "webhook_configuration": "by",
}


def _found(row: Mapping[str, Any]) -> list[str]:
    facts = [f"`{row['status']}`"]
    for field, value in row["finds"].items():
        if (field, value) == ("root_namespace", "istio-system"):
            continue
        if field in _NAMED:
            facts.append(f"{_NAMED[field]} `{value}`")
        elif (field, value) in _MEANINGS:
            facts.append(_MEANINGS[field, value])
    return facts


def _to_know(row: Mapping[str, Any]) -> list[str]:
    known: list[str] = []
    options = ", ".join(f"`{key}={value}`" for key, value in row.get("options", {}).items())
    if "blocked" in row:
        known.append(f"Blocked at first (`{row['blocked']}`) until {options} is set")
    elif options:
        known.append(f"set {options}")
    if "profiles" in row:
        known.append(f"with profile namespaces Blocked, until you run `{row['profiles']}`")
    return [*known, row["to_know"]]
