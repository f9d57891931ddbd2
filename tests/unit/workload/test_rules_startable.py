"""Which init container keeps a pod with a classic proxy from starting."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sidecar_lifecycle.decide import startable
from sidecar_lifecycle.model import types

HTTP = {"httpGet": {"path": "/ready", "port": 9801}, "periodSeconds": 1}
TCP = {"tcpSocket": {"port": "db"}}
GRPC = {"grpc": {"port": 9000, "service": None}}
EXEC = {"exec": {"command": ["true"]}}
REDIRECTED = {"httpGet": {"path": "/app-health/helper/startupz", "port": 15020}}
REDIRECTED_HOOK = {"httpGet": {"path": "/app-lifecycle/helper/poststartz", "port": 15020}}
UNCHANGED = {"sidecar.istio.io/rewriteAppHTTPProbers": "false"}
NATIVE = {"name": "helper", "restartPolicy": "Always"}


def containers(*documents: dict[str, Any]) -> list[types.Container]:
    return [msgspec.convert(each, types.Container) for each in documents]


@pytest.mark.parametrize(
    "helper",
    [
        pytest.param(NATIVE | {"startupProbe": HTTP}, id="http"),
        pytest.param(NATIVE | {"startupProbe": TCP}, id="tcp"),
        pytest.param(NATIVE | {"startupProbe": GRPC}, id="grpc"),
        pytest.param(NATIVE | {"lifecycle": {"postStart": HTTP}}, id="hook-http"),
        pytest.param(NATIVE | {"lifecycle": {"postStart": TCP}}, id="hook-tcp"),
    ],
)
def test_native_init_container_that_is_called_before_it_counts_as_started_blocks(
    helper: dict[str, Any],
) -> None:
    found = containers({"name": "first"}, helper)

    assert startable.blocking_container(found, {}) == "helper"
    assert startable.blocking_container(found, UNCHANGED) is None
    # istiod has left it as it was.
    assert startable.blocking_container(found, {}, injected=True) is None


@pytest.mark.parametrize(
    "helper",
    [
        pytest.param(NATIVE, id="no probe"),
        pytest.param(NATIVE | {"startupProbe": EXEC}, id="exec"),
        pytest.param(NATIVE | {"readinessProbe": HTTP}, id="readiness"),
        pytest.param(NATIVE | {"livenessProbe": HTTP}, id="liveness"),
        pytest.param(NATIVE | {"lifecycle": {"preStop": HTTP}}, id="preStop"),
        pytest.param(NATIVE | {"name": "istio-proxy", "startupProbe": HTTP}, id="the proxy"),
        pytest.param({"name": "helper", "restartPolicy": "OnFailure"}, id="no sidecar"),
    ],
)
def test_other_init_containers_do_not_block(helper: dict[str, Any]) -> None:
    assert startable.blocking_container(containers(helper), {}) is None


@pytest.mark.parametrize(
    "helper",
    [
        pytest.param(NATIVE | {"startupProbe": REDIRECTED}, id="probe"),
        pytest.param(NATIVE | {"lifecycle": {"postStart": REDIRECTED_HOOK}}, id="hook"),
    ],
)
def test_init_container_that_istiod_has_redirected_blocks(helper: dict[str, Any]) -> None:
    found = containers(helper, {"name": "istio-init"})

    assert startable.blocking_container(found, {}, injected=True) == "helper"
