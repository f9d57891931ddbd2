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
from sidecar_lifecycle.decide import creation, finished, mutate, payload, proxy_answer
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.admission import settings

from . import command

LARGEST = 16 * 1024 * 1024
"""Bytes that are read: some 1,500 pods."""
MOST_VALUES = 400_000
"""As many pods have, of up to 200 bytes each."""

T = TypeVar("T")


def add_parser(subparsers: command.Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "explain",
        help="print what the charm would do to pods, and why",
        **command.texts(
            "Read a pod or a list of pods as JSON. Print one JSON object per pod: whether its"
            " proxy would be stopped and, with --admission-settings, what admission would change."
            " A pod without a namespace, or in that of the model, counts as a pod of the model.",
            "kubectl get pods -o json | sidecar-lifecycle explain",
            "sidecar-lifecycle explain pod.json --admission-settings settings.json",
        ),
    )
    parser.add_argument("source", nargs="?", default="-", metavar="FILE", help="or - (default)")
    parser.add_argument(
        "--admission-settings",
        type=pathlib.Path,
        metavar="FILE",
        help="of admission, as its pods have it",
    )
    command.add_settings(parser, required=False)
    parser.set_defaults(main=main)


def main(arguments: argparse.Namespace) -> int:
    """Print one JSON object per pod."""
    given = arguments.settings
    # What would be done to a pod is worth knowing while it is switched off, too.
    rules = command.read_settings(given).rules if given else finished.Policy()
    wanted = _settings(arguments.admission_settings) if arguments.admission_settings else None
    for where, document in _pods(arguments.source):
        pod = _convert(types.without_nulls(document), types.Pod, where)
        ended = payload.ended_at(
            pod, wait_for=rules.wait_for_containers, ignore=rules.ignore_containers
        )
        known = proxy_answer.answer(pod, finished.finished(pod, rules))
        line = dataclasses.replace(known, ended=ended).line()
        if wanted is not None:
            line["admission"] = _admission(_convert(document, creation.Pod, where), pod, wanted)
        print(json.dumps(line))
    return 0


def _admission(new: creation.Pod, pod: types.Pod, wanted: pods.Settings) -> dict[str, Any]:
    in_model = (pod.metadata.namespace or wanted.model) == wanted.model
    mutation = mutate.mutate(new, wanted, "model" if in_model else "labelled")
    skipped = [each._asdict() for each in mutation.skipped]
    return {"applied": mutation.applied, "patch": mutation.patch, "skipped": skipped}


def _settings(path: pathlib.Path) -> pods.Settings:
    try:
        return settings.read(path)
    except OSError as error:
        raise command.InputError(f"can't read {path}: {error.strerror}") from error
    except settings.SettingsError as error:
        raise command.InputError(f"{path}: {error}") from error


def _pods(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pods of a file, or of standard input for `-`, each with its place in it."""
    where = "standard input" if source == "-" else source
    try:
        document = bounded.read_json(_read(source), longest=LARGEST, most=MOST_VALUES)
    except OSError as error:
        raise command.InputError(f"can't read {source}: {error.strerror}") from error
    except bounded.DocumentError as error:
        raise command.InputError(f"{where} {error}") from error
    fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    kind = fields.get("kind")
    items: Any = (fields.get("items") or []) if kind in ("List", "PodList") else [document]
    if not isinstance(items, list):
        raise command.InputError(f"{where}: `items` is not a list")
    for item in cast("list[Any]", items):
        pod = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        # The items of a PodList need no kind.
        if pod.get("kind", "Pod" if pod and kind == "PodList" else None) != "Pod":
            raise command.InputError(f"{where} has something that is not a Pod")
        yield where, pod


def _read(source: str) -> bytes:
    if source == "-":
        return sys.stdin.buffer.read(LARGEST + 1)
    with pathlib.Path(source).open("rb") as file:
        return file.read(LARGEST + 1)


def _convert(document: object, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        raise command.InputError(f"{where} has no valid Pod: {error}") from error
