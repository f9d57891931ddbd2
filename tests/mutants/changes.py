"""The changes that are tried: where, which of them, and what each makes of a file."""

import ast
import dataclasses
import difflib
import fnmatch
import hashlib
import json
import pathlib
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from testbed import environments

ROOT = pathlib.Path(__file__).parents[2]
Span = tuple[tuple[int, int], tuple[int, int]]
"""From a line and column to another; lines count from one, columns from zero."""
_LOGGERS = frozenset({"log", "logger"})
_WITHOUT_MEANING = frozenset(
    {"buckets", "defer_build", "exc_info", "maxsize", "stacklevel", "strict"}
)
_LARGE = 1000
_FIELD = re.compile(r"(?P<indent> *)(?P<item>- )?(?P<name>[\w./\"-]+):(?= |$)")
_BLOCK = re.compile(r"\{%-?\s*(end)?(?:if|for|macro)\b")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One small fault, which some test should notice."""

    room: str
    file: str
    start: tuple[int, int]
    end: tuple[int, int]
    operator: str
    occurrence: int
    line: str
    """The text of the line where it begins, by which it is known when lines above it move."""
    rank: str
    """Sorts the changes of a room, by the seed; the sample is those that come first."""


def excluded(source: str) -> list[Span]:
    """Return what of a module means nothing to its behaviour: types, log lines, decorators."""
    return [
        _span(each)
        for node in ast.walk(ast.parse(source))
        for each in _meaningless(node)
        if each is not None
    ]


def _meaningless(node: ast.AST) -> Iterable[ast.AST | None]:
    found: Iterable[ast.AST | None] = ()
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            found = *node.decorator_list, node.returns
        case ast.ClassDef():
            found = *node.decorator_list, *node.bases, *node.keywords
        case ast.arg() | ast.AnnAssign():
            found = (node.annotation,)
            if _is_tunable(node):
                found = (node,)
        case ast.Assign() if _is_tunable(node):
            found = (node,)
        case ast.keyword(arg=name) if name in _WITHOUT_MEANING:
            found = (node,)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in _LOGGERS:
            found = (node,)
        case ast.Call(func=ast.Attribute(attr="create_task"), keywords=named):
            found = named
        case (
            ast.Assert()
            | ast.Call(func=ast.Name(id="cast" | "TypeVar"))
            | ast.If(test=ast.Name(id="TYPE_CHECKING"))
        ):
            found = (node,)
    return found


def _is_tunable(node: ast.AST) -> bool:
    """Tell whether a name gets a number that may as well be another, such as a time to wait."""
    return isinstance(value := getattr(node, "value", None), ast.Constant) and isinstance(
        value.value, float
    )


def _span(node: Any) -> Span:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def meaningful(source: str, places: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Leave out places where a change would be none, or no Python."""
    without = excluded(source)
    sums = [_span(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.BinOp)]
    sums += [
        _span(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.AugAssign)
    ]
    for place in places:
        at = tuple(place["start"])
        if any(start <= at < end for start, end in without):
            continue
        if "BinaryOperator" in place["operator"] and not any(a <= at < b for a, b in sums):
            continue
        if place["operator"] == "NumberReplacer" and _is_large(source, place):
            continue
        yield place


def _is_large(source: str, place: Mapping[str, Any]) -> bool:
    """Tell whether a number is one of which it means nothing to be larger or smaller by one."""
    line = source.splitlines()[place["start"][0] - 1]
    number = ast.literal_eval(line[place["start"][1] : place["end"][1]])
    return abs(number) >= _LARGE


def removals(text: str) -> Iterator[tuple[Span, str]]:
    """Take each field out of a template, with all that is below it.

    A list's item goes whole. Where part of a Jinja block would go, nothing is taken.
    """
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        field = _FIELD.match(line)
        if not field or field["name"] in ("apiVersion", "kind", "name", "namespace"):
            continue
        indent = len(field["indent"])
        last = number + 1
        while last < len(lines) and _belongs(lines[last], indent, item=bool(field["item"])):
            last += 1
        after = next((each for each in lines[last:] if each.strip()[:1] not in ("", "{", "#")), "")
        goes_on = _belongs(after, indent, item=bool(field["item"]))
        if not goes_on and _whole("".join(lines[number:last])):
            yield ((number + 1, 0), (last, 0)), "".join((*lines[:number], *lines[last:]))


def _belongs(line: str, indent: int, *, item: bool) -> bool:
    if line.lstrip().startswith("{%"):
        return False
    deep = len(line) - len(line.lstrip())
    return bool(line.strip()) and (
        deep > indent or (not item and deep == indent and line[deep:].startswith("- "))
    )


def _whole(text: str) -> bool:
    """Tell whether every block of Jinja that begins in a text ends there."""
    ends = [bool(end) for end in _BLOCK.findall(text)]
    return 2 * sum(ends) == len(ends)


def ranked(room: str, places: Iterable[Mapping[str, Any]], seed: int) -> list[Change]:
    """Put the changes of a room in the order of a seed, one of each place.

    The order rests on what lines say and not on where they are, so that most of a sample stays
    what it was when a file changes, and a larger one holds the smaller one.
    """
    seen: Counter[str] = Counter()
    changes: dict[tuple[str, Any], Change] = {}
    for place in places:
        same = f"{seed} {place['file']} {place['operator']} {place['line']}"
        seen[same] += 1
        rank = hashlib.sha256(f"{same} {seen[same]}".encode()).hexdigest()
        span = {"start": tuple(place["start"]), "end": tuple(place["end"])}
        change = Change(**{**place, **span}, room=room, rank=rank)
        at = change.file, change.start
        if at not in changes or rank < changes[at].rank:
            changes[at] = change
    return sorted(changes.values(), key=lambda change: change.rank)


def sources(patterns: Iterable[str], root: pathlib.Path = ROOT) -> list[str]:
    """Return the files of a room, by patterns of which one may begin with `!` to leave out."""
    found: dict[str, None] = {}
    for pattern in patterns:
        if pattern.startswith("!"):
            found = {file: None for file in found if not fnmatch.fnmatch(file, pattern[1:])}
        else:
            files = sorted(str(path.relative_to(root)) for path in root.glob(pattern))
            if not files:
                raise FileNotFoundError(f"no file is called {pattern}")
            found |= dict.fromkeys(file for file in files if not file.endswith("__init__.py"))
    return list(found)


def all_of(room: str, files: Iterable[str], seed: int) -> list[Change]:
    """Find every change that can be made to some files, in the order of a seed."""
    texts = {file: (ROOT / file).read_text() for file in files}
    places: list[dict[str, Any]] = []
    for file, text in texts.items():
        if not file.endswith(".py"):
            for occurrence, ((start, end), _) in enumerate(removals(text)):
                places.append({"file": file, "start": start, "end": end, "occurrence": occurrence})
                places[-1]["operator"] = "ForgetField"
    python = [file for file in texts if file.endswith(".py")]
    found = _asked({"find": python}) if python else []
    for file in python:
        places += meaningful(texts[file], (each for each in found if each["file"] == file))
    lines = {file: text.splitlines() for file, text in texts.items()}
    for place in places:
        place["line"] = lines[place["file"]][place["start"][0] - 1].strip()
    return ranked(room, places, seed)


def made(changes: Iterable[Change]) -> Iterator[tuple[Change, str]]:
    """Make changes: yield each with the whole text of its file then, if that is Python."""
    changes = list(changes)
    python = [change for change in changes if change.file.endswith(".py")]
    asked = [
        {"file": change.file, "operator": change.operator, "occurrence": change.occurrence}
        for change in python
    ]
    texts = dict(zip(python, _asked({"make": asked}) if asked else [], strict=True))
    for change in changes:
        if change in texts:
            text = texts[change]
        else:
            text = [*removals((ROOT / change.file).read_text())][change.occurrence][1]
        if text is not None:
            yield change, text


def difference(before: str, after: str) -> str:
    """Tell what a change did in one line: what is gone, an arrow, and what is there instead."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))
    gone = " ".join(line[1:].strip() for line in lines[3:] if line.startswith("-"))
    new = " ".join(line[1:].strip() for line in lines[3:] if line.startswith("+"))
    return f"{gone} -> {new or 'nothing'}"


def _asked(request: Mapping[str, Any]) -> Any:
    python = environments.ensure("mutants") / "bin/python"
    program = pathlib.Path(__file__).with_name("positions.py")
    answer = subprocess.run(
        [python, program],
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        check=True,
    )
    return json.loads(answer.stdout)
