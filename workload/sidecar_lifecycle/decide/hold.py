"""Whether a pod's `proxy.istio.io/config` says that the application is held, and saying so."""

from __future__ import annotations

import json
from typing import Any, cast

import yaml

from integrator_contract import bounded
from integrator_contract.reasons import Reason

from . import status_port

HOLD = "holdApplicationUntilProxyStarts"
_SPELLINGS = (HOLD, "hold_application_until_proxy_starts")
"""Protobuf takes both and refuses a value that has both."""


def merge(value: str | None, *, held: bool) -> str | Reason:
    """Put the hold into a proxy configuration, as text, in front of its first entry.

    The value is YAML that is never rewritten: a user's own entry stays where it is and wins, and
    what does not parse stays as it was for istiod to report.

    Args:
        value: Of the annotation; None: the pod does not have it.
        held: Whether the application waits for its proxy.

    Returns:
        The new value, or why it is left as it is.
    """
    word = json.dumps(held)
    if value is None or not value.strip(" \t\r\n"):
        return f'{{"{HOLD}": {word}}}'
    if len(value) > status_port.LONGEST_CONFIG:
        return Reason.CONFIG_TOO_LONG
    try:
        config = bounded.read_yaml(value)
    except bounded.DocumentError:
        config = None
    if not isinstance(config, dict):
        return Reason.CONFIG_NOT_MERGEABLE
    if not cast("dict[Any, Any]", config).keys().isdisjoint(_SPELLINGS):
        return Reason.CONFIG_SAYS_ITSELF
    start = next(each for each in yaml.parse(value) if isinstance(each, yaml.MappingStartEvent))
    mark = start.start_mark
    assert mark is not None
    at = mark.index + bool(start.flow_style)
    if start.flow_style:
        # Behind the blank a comment may follow.
        entry = f'"{HOLD}": {word}{", " if config else " "}'
    else:
        entry = f"{HOLD}: {word}\n{' ' * mark.column}"
    return f"{value[:at]}{entry}{value[at:]}"
