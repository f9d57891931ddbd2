"""Builders for pods as an apiserver shows them, three lines per case."""

from typing import Any

import msgspec
from sidecar_lifecycle.model import types

PROXY = "istio-proxy"


def running() -> dict[str, Any]:
    return {"running": {"startedAt": "2026-01-01T00:00:05Z"}}


def ended(code: int = 0, *, finished: str = "2026-01-01T00:01:00Z") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": finished}}


def waiting(reason: str = "CrashLoopBackOff") -> dict[str, Any]:
    return {"waiting": {"reason": reason}}


def container(name: str, **extra: Any) -> dict[str, Any]:
    return {"name": name, "image": "registry.invalid/x:1", **extra}


def rule(action: str, *codes: int, operator: str = "In") -> dict[str, Any]:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(codes)}}


def status(name: str, state: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"name": name, "containerID": f"containerd://{name}-0", "state": state, **extra}


def pod_json(
    main: dict[str, Any] | None = None,
    *,
    proxy: dict[str, Any] | None = None,
    others: dict[str, dict[str, Any] | None] | None = None,
    policy: str = "Never",
    phase: str = "Running",
    annotations: dict[str, str] | None = None,
    name: str = "job-x",
    namespace: str = "kf",
    uid: str = "uid-1",
    main_spec: dict[str, Any] | None = None,
    proxy_spec: dict[str, Any] | None = None,
    init: list[dict[str, Any]] | None = None,
    init_statuses: list[dict[str, Any]] | None = None,
    conditions: list[dict[str, Any]] | None = None,
    node: str = "node-1",
    **metadata: Any,
) -> dict[str, Any]:
    """Return a classic injected pod whose payload has ended and whose proxy runs."""
    states: dict[str, dict[str, Any] | None] = {
        "main": ended() if main is None else main,
        **(others or {}),
    }
    states.setdefault(PROXY, running() if proxy is None else proxy)
    specs = {"main": main_spec or {}, PROXY: proxy_spec or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": "100",
            "labels": {"security.istio.io/tlsMode": "istio"},
            "annotations": annotations or {},
            **metadata,
        },
        "spec": {
            "restartPolicy": policy,
            "nodeName": node,
            "containers": [container(each, **specs.get(each, {})) for each in states],
            "initContainers": init or [],
        },
        "status": {
            "phase": phase,
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": conditions or [],
            "initContainerStatuses": init_statuses or [],
            "containerStatuses": [
                status(each, state) for each, state in states.items() if state is not None
            ],
        },
    }


def pod(main: dict[str, Any] | None = None, **extra: Any) -> types.Pod:
    """Return the same as our slim type."""
    return msgspec.convert(pod_json(main, **extra), types.Pod)
