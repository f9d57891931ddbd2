"""`sidecar-lifecycle explain`: print what the charm would do to pods, and why."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from integrator_contract import pods
from sidecar_lifecycle.decide import finished, mutate
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import InputError, settings


class _Document(msgspec.Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


def main(arguments: argparse.Namespace) -> None:
    """Print one JSON object per pod."""
    # The decision is printed even if proxy-shutdown is off.
    rules = settings.read(arguments.settings).rules if arguments.settings else finished.Policy()
    path = arguments.admission_settings
    wanted = settings.read_admission(path) if path else None
    try:
        for pod in _read_pods(_read_input(arguments.source)):
            values = dataclasses.asdict(finished.explain(pod, rules))
            line = {key: value for key, value in values.items() if value}
            if wanted is not None:
                line["admission"] = _explain_admission(pod, wanted)
            print(json.dumps(line))
    except (ValueError, RecursionError) as error:
        raise InputError(f"can't read {arguments.source}: {error}") from error


def _read_input(source: str) -> bytes:
    """Read a file, or standard input for `-`."""
    try:
        return sys.stdin.buffer.read() if source == "-" else pathlib.Path(source).read_bytes()
    except OSError as error:
        raise ValueError(error.strerror) from error


def _read_pods(text: bytes) -> Iterator[types.Pod]:
    document = msgspec.json.decode(text, type=_Document)
    is_list = document.kind in ("List", "PodList")
    for raw in (document.items or []) if is_list else [text]:
        pod = types.decode_json(raw, types.Pod)
        # Items of a PodList may have no kind.
        if (pod.kind or document.kind.removesuffix("List")) != "Pod":
            raise ValueError("it has something that is not a Pod")
        yield pod


def _explain_admission(pod: types.Pod, wanted: pods.Settings) -> dict[str, Any]:
    in_model = (pod.metadata.namespace or wanted.model) == wanted.model
    mutation = mutate.mutate(pod, wanted, "model" if in_model else "labelled")
    skipped = [each._asdict() for each in mutation.skipped]
    return {"applied": mutation.applied, "patch": mutation.patch, "skipped": skipped}
