"""`sidecar-lifecycle explain`: print what the charm would do to pods, and why."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import msgspec

from integrator_contract import bounded, pods
from sidecar_lifecycle.decide import creation, finished, mutate, payload
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell import InputError, admission_settings, settings

LARGEST = 16 * 1024 * 1024
"""Bytes that are read: some 1,500 pods."""
MOST_VALUES = 400_000
"""As many pods have, of up to 200 bytes each."""

T = TypeVar("T")


def main(arguments: argparse.Namespace) -> None:
    """Print one JSON object per pod."""
    # What would be done to a pod is worth knowing while it is switched off, too.
    rules = settings.read(arguments.settings).rules if arguments.settings else finished.Policy()
    wanted: pods.Settings | None = None
    if path := arguments.admission_settings:
        try:
            wanted = admission_settings.load(admission_settings.read(path))
        except (OSError, ValueError) as error:
            raise InputError(f"can't read {path}: {error}") from error
    for where, document in _pods(arguments.source):
        pod = _convert(types.without_nulls(document), types.Pod, where)
        ended = payload.ended_at(
            pod, wait_for=rules.wait_for_containers, ignore=rules.ignore_containers
        )
        known = finished.finished(pod, rules).answer(pod)
        values = dataclasses.asdict(dataclasses.replace(known, ended=ended))
        line = {key: value for key, value in values.items() if value}
        if wanted is not None:
            line["admission"] = _admission(_convert(document, creation.Pod, where), pod, wanted)
        print(json.dumps(line))


def _admission(new: creation.Pod, pod: types.Pod, wanted: pods.Settings) -> dict[str, Any]:
    in_model = (pod.metadata.namespace or wanted.model) == wanted.model
    mutation = mutate.mutate(new, wanted, "model" if in_model else "labelled")
    skipped = [each._asdict() for each in mutation.skipped]
    return {"applied": mutation.applied, "patch": mutation.patch, "skipped": skipped}


def _pods(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pods of a file, or of standard input for `-`, each with its place in it."""
    where = "standard input" if source == "-" else source
    try:
        if source == "-":
            text = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with pathlib.Path(source).open("rb") as file:
                text = file.read(LARGEST + 1)
        document = bounded.read_json(text, longest=LARGEST, most=MOST_VALUES)
    except OSError as error:
        raise InputError(f"can't read {source}: {error.strerror}") from error
    except bounded.DocumentError as error:
        raise InputError(f"{where} {error}") from error
    fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    kind = fields.get("kind")
    items: Any = (fields.get("items") or []) if kind in ("List", "PodList") else [document]
    if not isinstance(items, list):
        raise InputError(f"{where}: `items` is not a list")
    for item in cast("list[Any]", items):
        pod = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        # The items of a PodList need no kind.
        if pod.get("kind", "Pod" if pod and kind == "PodList" else None) != "Pod":
            raise InputError(f"{where} has something that is not a Pod")
        yield where, pod


def _convert(document: object, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InputError(f"{where} has no valid Pod: {error}") from error
