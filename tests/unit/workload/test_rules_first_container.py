"""Which container a pod's controller addresses at index 0."""

from __future__ import annotations

import pytest
from sidecar_lifecycle.decide import first_container

RAY = {"ray.io/node-type": "worker"}


@pytest.mark.parametrize(
    ("labels", "inits", "containers", "expected"),
    [
        ({}, ["charm-init"], ["charm", "db"], "charm"),
        ({}, ["charm-init", "istio-init"], ["istio-proxy", "db", "charm"], "charm"),
        ({}, ["charm-init"], ["db"], None),
        ({}, ["init"], ["charm", "db"], None),
        (RAY, [], ["ray-worker"], "ray-worker"),
        (RAY, [], ["istio-proxy", "ray-worker", "logs"], "ray-worker"),
        (RAY, [], ["istio-proxy"], None),
        ({}, [], ["main"], None),
    ],
)
def test_addressed_container(
    labels: dict[str, str], inits: list[str], containers: list[str], expected: str | None
) -> None:
    assert first_container.addressed(labels, inits, containers) == expected
