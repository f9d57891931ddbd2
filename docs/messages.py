"""The messages of the charm for docs/reference/messages.md, and every text of both programs.

A message is often composed of several texts. Values in a text are between « and ».
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "lib")]

from istio_integrator.messages import Severity, Template  # noqa: E402 - the path is set first

_SOURCES = ("src", "lib/integrator_contract", "workload/sidecar_lifecycle")
_ELSEWHERE = frozenset({"messages.py", "reasons.py", "schema.py"})
"""Whose texts are a table or a page of their own, or are read by programs alone."""
_KINDS = (
    (re.compile(r"^(self\.)?_?(log|logger)\."), "log"),
    (re.compile(r"\.record$"), "Event"),
)
"""What a text is, by whom it is handed to."""
_HIDDEN = re.compile(
    r"^re\.|^cast$|^TypeVar|add_parser$|add_argument$|^_texts$|^registry\.check"
    r"|^prometheus_client\.|^_?(gauge|counter|histogram|family)$|^_(option|required)$|create_task$"
    r"|\.guard(ed)?$"
)
"""What is handed to these is no message, or has a page of its own."""
_COMMAND = re.compile(r"^(kubectl|juju|istioctl|timedatectl|/charm/bin|sidecar-lifecycle|-n|%) ?")
_WORD = re.compile(r"[A-Za-z«][a-z'»]+")
_FEWEST = {"log": 1, "status": 1, "part": 3}
"""Words of a message; what has fewer says nothing by itself."""
_CODE = re.compile(r"[{}\[\]\\^$]|->|\*\*|import |HTTP/1|urllib")
"""What no sentence has."""


@dataclasses.dataclass(frozen=True, order=True)
class Message:
    """One text."""

    kind: str
    """`status`, `log`, `Event`, `refusal`, or `part` of one of these."""
    text: str
    line: str = dataclasses.field(default="", compare=False)
    """Its file and line."""


def page() -> str:
    """Write docs/reference/messages.md."""
    sections = [
        f"## {severity.value.capitalize()}\n\n{''.join(map(_line, found))}"
        for severity in Severity
        if severity is not Severity.NOTE
        and (found := [each for each in Template if each.value.severity is severity])
    ]
    return (
        "# Messages\n\n"
        "Every problem that the status and `diagnose` show, by severity. « and » enclose values.\n"
        "`juju status` shows the most severe message and counts the others. Only `diagnose`\n"
        "shows doubts. Both print the next command. With `format=json` you get the name of each\n"
        "message, which stays when the text changes.\n\n" + "\n".join(sections)
    )


def _line(said: Template) -> str:
    row = said.value
    more = re.sub(r"(^|; )«\w+»$", "", _filled(row.more))
    text = _filled(row.condition)
    if more.startswith("or "):
        text += f" ({more})"
    elif more:
        text += f". {more[:1].upper()}{more[1:]}"
    symptom = f" ([symptom](../how-to/symptoms.md#{row.symptom}))" if row.symptom else ""
    return f"- `{said.name}`: {text}{symptom}\n"


def _filled(text: str) -> str:
    return re.sub(r"\{(\w+)\}", r"«\1»", text).replace("{{", "{").replace("}}", "}")


def all_of(root: pathlib.Path) -> Iterator[Message]:
    """List the statuses, and the other texts of both programs."""
    for said in Template:
        for text in filter(None, (said.value.condition, said.value.more)):
            yield Message("status", _filled(text), f"messages.py {said.name}")
    yield from scraped(root)


def scraped(root: pathlib.Path) -> Iterator[Message]:
    """Read the texts of both programs from their code, package by package."""
    for folder in _SOURCES:
        for file in sorted((root / folder).rglob("*.py")):
            if file.name not in _ELSEWHERE:
                name = file.relative_to(root).as_posix()
                yield from read(file.read_text(), name)


def read(source: str, name: str) -> Iterator[Message]:
    """Read the texts of a module."""
    for node, above in _texts(ast.parse(source), ()):
        text = " ".join(_written(node).split())
        kind = _kind(node, above)
        if kind and _is_message(text, kind):
            yield Message(kind, text, f"{name}:{node.lineno}")


def _texts(
    node: ast.AST, above: tuple[ast.AST, ...]
) -> Iterator[tuple[ast.Constant | ast.JoinedStr, tuple[ast.AST, ...]]]:
    """Find texts that are no docstrings, with what they stand in."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    ):
        yield node, above
        return
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        children: Iterable[ast.AST] = [
            each for each in ast.iter_child_nodes(node) if each is not node.annotation
        ]
    else:
        children = ast.iter_child_nodes(node)
    for child in children:
        yield from _texts(child, (*above, node))


def _written(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return re.sub(r"%[sdr]", "«…»", str(node.value))
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else f"«{_named(part)}»"
        for part in node.values
    )


def _named(node: ast.AST) -> str:
    """Name what is put in by the last name in its expression."""
    inner = node.value if isinstance(node, ast.FormattedValue) else node
    while isinstance(inner, ast.Call | ast.Subscript):
        if isinstance(inner, ast.Subscript):
            inner = inner.value
        else:
            inner = inner.args[0] if inner.args else inner.func
    if isinstance(inner, ast.Attribute):
        return inner.attr.strip("_").lower()
    return inner.id.strip("_").lower() if isinstance(inner, ast.Name) else "…"


def _kind(text: ast.AST, above: Sequence[ast.AST]) -> str:
    """Tell what a text is by what it stands in; nothing where it is no message."""
    for node in reversed(above):
        if isinstance(node, ast.Raise):
            return "refusal"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if _HIDDEN.search(called):
                return ""
            for pattern, kind in _KINDS:
                if pattern.search(called):
                    told = kind != "log" or node.args[0] in (*above, text)
                    return kind if told else ""
    return "part"


def _is_message(text: str, kind: str) -> bool:
    if _COMMAND.match(text) or _CODE.search(text.replace("{a.b/key: value}", "")):
        return False
    return len(_WORD.findall(text)) >= _FEWEST.get(kind, 2) and (kind != "part" or " " in text)
