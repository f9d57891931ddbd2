"""Pods that cannot start with a classic proxy, because an init container waits for that proxy.

A native init container (restartPolicy Always) blocks the containers after it until its startup
probe and its postStart hook have succeeded (Kubernetes pkg/kubelet/kuberuntime,
`computeInitContainerActions`). istiod redirects those that use HTTP, TCP or gRPC to the proxy
(istio pkg/kube/inject/app_probe.go, `convertProbe`), and a classic proxy starts after every init
container. Readiness and liveness probes block no other container.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from integrator_contract import booleans, names
from sidecar_lifecycle.model import types

_REDIRECTED = ("/app-health/", "/app-lifecycle/")
"""Prefixes of pilot-agent's paths for redirected probes (`FormatProberURL`)."""


def find_blocking(
    init_containers: Iterable[types.Container],
    annotations: Mapping[str, str],
    *,
    injected: bool = False,
) -> str | None:
    """Return the name of the init container that would wait for a classic proxy forever.

    Args:
        init_containers: The pod's init containers, in any order.
        annotations: The pod's annotations; one of them disables istiod's redirection.
        injected: Whether istiod has already changed the pod. If so, only redirected probes count,
            since the mesh may have disabled the redirection.
    """
    if not injected and not booleans.parse(annotations.get(names.REWRITE_PROBES), default=True):
        return None
    return next(
        (each.name for each in init_containers if _is_blocking(each, injected=injected)), None
    )


def _is_blocking(container: types.Container, *, injected: bool) -> bool:
    if container.restartPolicy != "Always" or container.name == names.PROXY:
        return False
    hook = container.lifecycle.postStart if container.lifecycle else None
    handlers = [each for each in (container.startupProbe, hook) if each is not None]
    if injected:
        paths = [each.httpGet.path or "" for each in handlers if each.httpGet]
        return any(path.startswith(_REDIRECTED) for path in paths)
    return any(each.httpGet or each.tcpSocket or each.grpc for each in handlers)
