"""Read pods as people have them: JSON or YAML, one, a List, or a stream of documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from sidecar_lifecycle.model import bounded

from . import command


@dataclass(frozen=True, slots=True)
class Document:
    """One pod of the input."""

    where: str
    """How to name it in a message, such as `pods.yaml, document 2, item 3`."""
    object: dict[str, Any]


def read(source: str) -> Iterator[Document]:
    """Yield the pods of a file, or of standard input for `-`.

    Raises:
        command.InputError: naming the document that is not a pod, or can't be parsed.
    """
    label = "standard input" if source == "-" else source
    found = False
    try:
        for number, document in enumerate(bounded.documents(bounded.read(source)), start=1):
            if document is not None:
                found = True
                yield from _pods(document, f"{label}, document {number}")
    except OSError as error:
        raise command.InputError(f"can't read {source}: {error.strerror}") from error
    except bounded.RefusedError as error:
        raise command.InputError(f"{label} {error}") from error
    if not found:
        raise command.InputError(f"{label} is empty")


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
