"""Read pods as people have them: JSON or YAML, one, a List, or a stream of documents."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from . import command


@dataclass(frozen=True, slots=True)
class Document:
    """One pod of the input."""

    where: str
    """How to name it in a message, such as `pods.yaml, document 2, item 3`."""
    object: dict[str, Any]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # with libyaml if there
    """Keeps timestamps as the text that Kubernetes has."""


# PyYAML has no public way to remove one implicit type.
_Loader.yaml_implicit_resolvers = {
    key: [entry for entry in entries if entry[0] != "tag:yaml.org,2002:timestamp"]
    for key, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(source: str) -> Iterator[Document]:
    """Yield the pods of a file, or of standard input for `-`.

    Raises:
        command.InputError: naming the document that is not a pod, or can't be parsed.
    """
    label = "standard input" if source == "-" else source
    found = False
    for number, document in enumerate(_parse(_text(source), label), start=1):
        if document is not None:
            found = True
            yield from _pods(document, f"{label}, document {number}")
    if not found:
        raise command.InputError(f"{label} is empty")


def _text(source: str) -> str:
    try:
        if source == "-":
            return sys.stdin.buffer.read().decode()
        return Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise command.InputError(f"can't read {source}: {reason}") from error


def _parse(text: str, label: str) -> Iterator[object]:
    if text.lstrip()[:1] == "{":
        try:
            # Also several objects one after the other, as `kubectl get -o json -w` prints them.
            documents = list(_json_stream(text))
        except json.JSONDecodeError:
            # A YAML flow mapping begins like that, too.
            pass
        else:
            yield from documents
            return
    try:
        yield from yaml.load_all(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise command.InputError(f"{label} is neither JSON nor YAML: {_line(error)}") from error


def _line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())[:300]


def _json_stream(text: str) -> Iterator[object]:
    decoder = json.JSONDecoder()
    position = 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            return
        document, position = decoder.raw_decode(text, position)
        yield document


def _pods(document: object, where: str) -> Iterator[Document]:
    if not isinstance(document, dict):
        raise command.InputError(f"{where} is not a Kubernetes object")
    fields = cast("dict[str, Any]", document)
    kind = fields.get("kind")
    if kind in ("List", "PodList"):
        items: object = fields.get("items") or []
        if not isinstance(items, list):
            raise command.InputError(f"{where}: `items` of the {kind} is not a list")
        for number, item in enumerate(cast("list[object]", items), start=1):
            # The items of a PodList need not say what they are.
            if kind == "PodList" and isinstance(item, dict):
                item = {"kind": "Pod", **cast("dict[str, Any]", item)}  # noqa: PLW2901
            yield from _pods(item, f"{where}, item {number}")
    elif kind == "Pod":
        yield Document(where, fields)
    else:
        raise command.InputError(f"{where} is not a Pod but {kind or 'has no kind'}")
