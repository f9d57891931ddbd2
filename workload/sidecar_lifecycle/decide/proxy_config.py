"""The annotation `proxy.istio.io/config` of a pod: added settings, and the port of the agent.

Protobuf accepts two spellings of each key, but rejects a value with both.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any, cast

import yaml

from integrator_contract import bounded, names, pods
from integrator_contract.reasons import Reason

LONGEST = 2048
"""Characters of a configuration, read in at most about 20 ms; 200 are usual."""
HOLD = "holdApplicationUntilProxyStarts"
METADATA = "proxyMetadata"
_PORT_KEYS = ("statusPort", "status_port")
_DIGITS = 5
"""Characters of a port: the highest is 65535."""


def find_status_port(annotations: Mapping[str, str], mesh: int) -> int | None:
    """Return the port of a proxy's agent; None if the pod's own annotation is not a port.

    The precedence is annotation, configuration, mesh. 0 means that the agent has no status port:
    the proxy can then only be stopped from within its container.
    """
    if text := annotations.get(names.STATUS_PORT, "").strip():
        return _read_port(text)
    configured = read_port(annotations.get(names.PROXY_CONFIG, ""))
    return mesh if configured is None else configured


def read_port(text: str) -> int | None:
    """Return the port in a configuration; None if it has no port.

    An unreadable configuration or an invalid port is ignored: istiod rejects such a pod. If the
    port is in fact another one, a command in the proxy still stops it.
    """
    if len(text) > LONGEST or not any(key in text for key in _PORT_KEYS):
        return None
    config = _read(text) or {}
    value = next((config[key] for key in _PORT_KEYS if key in config), None)
    return None if isinstance(value, bool) else _read_port(str(value))


def _read_port(text: str) -> int | None:
    is_number = len(text) <= _DIGITS and text.isdecimal()
    return int(text) if is_number and int(text) <= pods.HIGHEST_PORT else None


def insert_setting(value: str | None, key: str, setting: object) -> str | Reason:
    """Insert a setting into the text of a configuration, before its first entry.

    The YAML is not rewritten otherwise. A user's own entry stays and takes precedence. An invalid
    value stays unchanged, so that istiod reports it.

    Args:
        value: The annotation's value; None: the pod does not have it.
        key: The name of the setting in camel case, as in JSON.
        setting: Its value, of any type that JSON has.

    Returns:
        The new value, or the reason for no change.
    """
    word = json.dumps(setting)
    if value is None or not value.strip(" \t\r\n"):
        return f'{{"{key}": {word}}}'
    if len(value) > LONGEST:
        return Reason.CONFIG_TOO_LONG
    config = _read(value)
    if config is None:
        return Reason.CONFIG_NOT_MERGEABLE
    in_snake_case = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key)
    if not config.keys().isdisjoint((key, in_snake_case)):
        return Reason.CONFIG_SAYS_ITSELF
    start = next(each for each in yaml.parse(value) if isinstance(each, yaml.MappingStartEvent))
    mark = start.start_mark
    assert mark is not None
    at = mark.index + bool(start.flow_style)
    if start.flow_style:
        # A comment may follow the blank.
        entry = f'"{key}": {word}{", " if config else " "}'
    else:
        entry = f"{key}: {word}\n{' ' * mark.column}"
    merged = f"{value[:at]}{entry}{value[at:]}"
    # A longer result would hide the pod's own status port from `read_port`.
    return merged if len(merged) <= LONGEST else Reason.CONFIG_TOO_LONG


# The pods of a workload share their configuration.
@functools.lru_cache(maxsize=64)
def _read(text: str) -> Mapping[Any, Any] | None:
    try:
        config = bounded.read_yaml(text)
    except bounded.DocumentError:
        return None
    return cast("dict[Any, Any]", config) if isinstance(config, dict) else None
