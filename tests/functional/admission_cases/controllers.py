"""Pods whose controller addresses the first container: Juju's units, and KubeRay's."""

from __future__ import annotations

from tests.functional.admission_cases.case import (
    APPLIED,
    CONFIG,
    KEY,
    NATIVE,
    NO_SIDECAR,
    TO_COMPLETION,
    Case,
    container,
    native,
)

INIT = container("charm-init", "a:1")
CHARM, DB, PROXY = (container(name, f"{name}:1") for name in ("charm", "db", "istio-proxy"))
UNIT = {"initContainers": [INIT], "containers": [CHARM, DB]}
RAY = {"ray.io/node-type": "worker"}
NOT_HELD = f'{{"{KEY}": false}}'


def unit(*containers: dict[str, str]) -> dict[str, list[dict[str, str]]]:
    return {"initContainers": [INIT], "containers": list(containers)}


ADDRESSED = (
    Case(id="a unit is not held", spec=UNIT, skipped=("hold:FirstContainer",)),
    Case(
        id="Ray's pod is not held",
        namespace="profiles",
        labels=RAY,
        skipped=("hold:FirstContainer",),
    ),
    native(
        "Ray's pod that runs to completion is native",
        settings="native",
        labels=RAY,
        spec=TO_COMPLETION,
    ),
    Case(
        id="a unit declines the mesh's hold",
        settings="mesh-holds",
        spec=UNIT,
        want=("no-hold",),
        want_annotations={CONFIG: NOT_HELD},
    ),
    Case(
        id="a unit declines the mesh's hold beside what it configures",
        settings="mesh-holds",
        annotations={CONFIG: "concurrency: 2"},
        spec=UNIT,
        want=("no-hold",),
        want_annotations={CONFIG: f"{KEY}: false\nconcurrency: 2"},
    ),
    Case(
        id="a unit with a native sidecar has nothing to decline",
        settings="mesh-holds",
        annotations={NATIVE: "true"},
        spec=UNIT,
    ),
    Case(
        id="a unit without sidecar has nothing to decline",
        settings="mesh-holds",
        labels=NO_SIDECAR,
        spec=UNIT,
    ),
    Case(id="another pod keeps the mesh's hold", settings="mesh-holds"),
    Case(
        id="a unit's charm comes before its proxy",
        annotations={APPLIED: "no-hold"},
        spec=unit(PROXY, CHARM, DB),
        want=("order",),
        want_annotations={APPLIED: "no-hold,order"},
        want_first="charm",
        skipped=("all:HasProxy",),
    ),
    Case(
        id="Ray's container comes before its proxy",
        labels=RAY,
        spec={"containers": [PROXY, container("worker", "a:1"), DB]},
        want=("order",),
        want_first="worker",
        skipped=("all:HasProxy",),
    ),
    Case(
        id="a unit whose charm is first",
        spec=unit(CHARM, PROXY, DB),
        skipped=("all:HasProxy",),
    ),
    Case(
        id="another pod's proxy stays first",
        spec={"containers": [PROXY, DB]},
        skipped=("all:HasProxy",),
    ),
    Case(
        id="in the model, where only places are given, a proxy stays first",
        settings="place-only",
        spec=unit(PROXY, CHARM),
        skipped=("all:HasProxy",),
    ),
)
