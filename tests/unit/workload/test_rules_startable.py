"""Which init container keeps a pod with a classic proxy from starting."""

from typing import Any

import msgspec
from sidecar_lifecycle.decide import startable
from sidecar_lifecycle.model import types

from tests.unit.cases import cases

HTTP = {"httpGet": {"path": "/app-healthz/app-health/", "port": 9801}, "periodSeconds": 1}
TCP = {"tcpSocket": {"port": "db"}}
GRPC = {"grpc": {"port": 9000, "service": None}}
EXEC = {"exec": {"command": ["true"]}}
REDIRECTED = {"httpGet": {"path": "/app-health/helper/startupz", "port": 15020}}
REDIRECTED_HOOK = {"httpGet": {"path": "/app-lifecycle/helper/poststartz", "port": 15020}}
UNCHANGED = {"sidecar.istio.io/rewriteAppHTTPProbers": "false"}
NATIVE = {"name": "helper", "restartPolicy": "Always"}


def containers(*documents: dict[str, Any]) -> list[types.Container]:
    return [msgspec.convert(each, types.Container) for each in documents]


@cases(
    "helper",
    http=NATIVE | {"startupProbe": HTTP},
    http_without_a_path=NATIVE | {"startupProbe": {"httpGet": {"port": 9801}}},
    tcp=NATIVE | {"startupProbe": TCP},
    grpc=NATIVE | {"startupProbe": GRPC},
    hook_http=NATIVE | {"lifecycle": {"postStart": HTTP}},
    hook_tcp=NATIVE | {"lifecycle": {"postStart": TCP}},
    hook_beside_a_probe_of_its_own=NATIVE
    | {"startupProbe": EXEC, "lifecycle": {"postStart": HTTP}},
)
def test_native_init_container_that_is_called_before_it_counts_as_started_blocks(
    helper: dict[str, Any],
) -> None:
    found = containers({"name": "first"}, helper)

    assert startable.find_blocking(found, {}) == "helper"
    assert startable.find_blocking(found, UNCHANGED) is None
    # istiod has left it as it was.
    assert startable.find_blocking(found, {}, injected=True) is None


@cases(
    "helper",
    no_probe=NATIVE,
    exec=NATIVE | {"startupProbe": EXEC},
    readiness=NATIVE | {"readinessProbe": HTTP},
    liveness=NATIVE | {"livenessProbe": HTTP},
    preStop=NATIVE | {"lifecycle": {"preStop": HTTP}},
    the_proxy=NATIVE | {"name": "istio-proxy", "startupProbe": HTTP},
    no_sidecar={"name": "helper", "restartPolicy": "OnFailure"},
)
def test_other_init_containers_do_not_block(helper: dict[str, Any]) -> None:
    assert startable.find_blocking(containers(helper), {}) is None


@cases(
    "helper",
    probe=NATIVE | {"startupProbe": REDIRECTED},
    hook=NATIVE | {"startupProbe": HTTP, "lifecycle": {"postStart": REDIRECTED_HOOK}},
)
def test_init_container_that_istiod_has_redirected_blocks(helper: dict[str, Any]) -> None:
    found = containers(helper, {"name": "istio-init"})

    assert startable.find_blocking(found, {}, injected=True) == "helper"
    assert startable.find_blocking(found, UNCHANGED, injected=True) == "helper"
