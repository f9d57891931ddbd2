"""The option by which ports stay open to plain text: `mtls-exceptions`."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from integrator_contract import pods, service

MOST = 200
"""Entries of the option."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_GRAMMAR = "write NAME or NAME:PORT, as in minio:9000, mlmd"


@dataclasses.dataclass(frozen=True)
class PlainTextPort:
    """A Service or a workload of the model, and what of it stays open."""

    name: str
    port: str = ""
    """A port's number or name; empty: every one that is known."""

    def __str__(self) -> str:
        return f"{self.name}:{self.port}" if self.port else self.name


def parse(text: Any) -> Any:
    """Read the option; a ValueError says what is wrong with it."""
    if not isinstance(text, str):
        return text
    found = tuple(dict.fromkeys(map(_entry, service.words(text))))
    if len(found) > MOST:
        raise ValueError(f"at most {MOST} entries")
    return found


def _entry(text: str) -> PlainTextPort:
    name, colon, port = text.partition(":")
    if not _NAME.fullmatch(name) or (colon and not port):
        raise ValueError(f"'{text}' is no Service or workload with a port: {_GRAMMAR}")
    if port.isdecimal():
        if not pods.is_port(int(port)):
            raise ValueError(f"'{text}': ports are 1 to 65535")
        return PlainTextPort(name, str(int(port)))
    if port and not _PORT_NAME.fullmatch(port):
        raise ValueError(f"'{text}': '{port}' is neither a port's number nor its name: {_GRAMMAR}")
    return PlainTextPort(name, port)
