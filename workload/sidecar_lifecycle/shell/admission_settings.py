"""The settings file of `admission` and `explain`, as the charm writes it."""

from __future__ import annotations

import pathlib

import msgspec

from integrator_contract import pods
from sidecar_lifecycle.shell import InputError


def read(path: pathlib.Path) -> pods.Settings:
    """Read the settings from a file.

    Raises:
        InputError: It can't be read, or `load` can't use it.
    """
    try:
        return load(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def load(text: bytes | str) -> pods.Settings:
    """Read settings from JSON.

    Raises:
        ValueError: The text is no JSON, or a setting has a wrong name or value.
    """
    try:
        return msgspec.convert(pods.named(msgspec.json.decode(text)), pods.Settings)
    except RecursionError as error:
        raise ValueError(str(error)) from error
