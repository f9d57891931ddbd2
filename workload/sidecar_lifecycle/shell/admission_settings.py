"""The settings file of `admission` and `explain`, as the charm writes it."""

from __future__ import annotations

import pathlib
from typing import Any

import msgspec

from integrator_contract import pods

LARGEST = 1024 * 1024
"""Of the settings, in bytes: a ConfigMap has no more."""


class SettingsError(ValueError):
    """The settings can't be used; the message says which and why."""


def read(path: pathlib.Path) -> bytes:
    """Read the text of a file for `load`.

    Raises:
        OSError: It can't be read.
        SettingsError: It is too long.
    """
    with path.open("rb") as file:
        text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise SettingsError(f"it has more than {LARGEST // 1024} KiB")
    return text


def load(text: bytes | str) -> pods.Settings:
    """Read settings from JSON.

    Raises:
        SettingsError: The text is no JSON, or a setting has a wrong name or value.
    """
    try:
        document: Any = msgspec.json.decode(text)
        return msgspec.convert(pods.named(document), pods.Settings)
    except UnicodeDecodeError as error:
        raise SettingsError("this is not UTF-8 text") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(str(error)) from error
