"""At which port a proxy's agent listens, as Istio decides it.

The pod's own annotation wins, then `statusPort` in its `proxy.istio.io/config`, then the mesh.
0 means that the agent has no such port: the proxy can then only be stopped from within.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, cast

from integrator_contract import bounded, names, pods

DIGITS = 5
"""Characters of a port: the highest is 65535."""
LONGEST_CONFIG = 2048
"""Characters of a proxy's configuration, read in some 20 ms at worst; usual are 200."""

_KEYS = ("statusPort", "status_port")
"""Both of protobuf's spellings, which it refuses together."""


def of(annotations: Mapping[str, str], mesh: int) -> int | None:
    """Return the port, None if the pod's own annotation is no port.

    A configuration that can't be read, or with a value that is no port, says nothing: istiod
    refuses such a pod, and where the port is another one a command in the proxy still stops it.
    """
    text = annotations.get(names.STATUS_PORT, "").strip()
    if text:
        return _port(text)
    configured = in_config(annotations.get(names.PROXY_CONFIG, ""))
    return mesh if configured is None else configured


def _port(text: str) -> int | None:
    if len(text) > DIGITS or not text.isdecimal():
        return None
    return int(text) if int(text) <= pods.HIGHEST_PORT else None


def in_config(text: str) -> int | None:
    """Return the port that a proxy's configuration names, None if it names none."""
    if len(text) > LONGEST_CONFIG or not any(key in text for key in _KEYS):
        return None
    return _read(text)


@functools.lru_cache(maxsize=64)
def _read(text: str) -> int | None:
    # The pods of a workload share their configuration.
    try:
        config = bounded.read_yaml(text)
    except bounded.DocumentError:
        return None
    if not isinstance(config, dict):
        return None
    entries = cast("dict[Any, Any]", config)
    value = next((entries[key] for key in _KEYS if key in entries), None)
    return None if isinstance(value, bool) else _port(str(value))
