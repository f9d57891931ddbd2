"""What pages and messages must name, and the words that they avoid: a part of `make lint`.

Messages are those of statuses, logs, Events and actions, options, alerts, titles of the dashboard,
`make help` and the demo.

Usage: python docs/check.py   (prints what is wrong, a line each, and exits 1)
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import commands
import messages
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent

_NAMED = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`")
_FILE = re.compile(r"`(tests/[\w/]+\.py)`")
_DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)
_FENCED = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"\n\s*\n|\n(?=\||[-*] |\d+\. |\[\^)")
_NOTE = re.compile(r"\[\^([\w-]+)\](?!:)")
_PROMISE = re.compile(r"\b(never|always|at most|nobody else|no other)\b")
_PRODUCED = re.compile(r"<!-- produced by: ([^>]*?) -->")
_COMMAND = re.compile(r"\b(juju (config|integrate|refresh|remove|run|trust)|kubectl|istioctl) ?")
"""What begins a command in a message."""
_SOURCE = re.compile(r"https?://|k8s\.io/|\bKEP-\d|\bobserved\b")
"""What is not promised by this charm says where it is known from."""
_NO_PROMISES = frozenset({"index.md"})
"""Lists of pages."""

SHAPES = {
    r"\b(we|us|our|ours|ourselves)\b": "say who: this charm, this model, the unit",
    r"\b(please|sorry|oops|just|simply|obviously)\b": "leave it out",
    r"\b(e\.g\.|i\.e\.|etc\.|via)": "write it out: such as, that is, and so on, by",
    r"\bnot looked at\b": "is ignored",
    r"\bin the care of\b": "is managed by",
    r"\bhas gone\b": "does not exist any more",
    r"\bmay not (get|list|watch|create|patch|delete)\b": "missing permission: list pods",
    r"!$": "no exclamation mark",
    r"--reset": "set a value: Juju 4 runs no config-changed after a reset",
    r"\b(none but|anybody would)\b": "say which, or how many",
    r"\b(somebody|nobody|whoever|everybody|anew|for good|meanwhile)\b": "name the actor",
    r"\bof (its|their) own\b|\bas it should be\b": "its own X; correct",
}
"""Words and shapes that no message, option or action has, and what to write instead."""

_REFUSED = {
    r"\bjuju wait-for\b": "Juju 4.0 has no wait-for",
    r"\bjuju deploy (?:\.|[^\s`]*/[^\s`]*)(?<!\.charm)(?<!\.yaml)(?=[\s`]|$)": (
        "Juju 3.6 and 4.0 deploy a packed .charm file, and no folder"
    ),
}
"""Commands that Juju refuses, by expression, and why."""


MOST = {
    r"\bnothing\b": (0.06, 0.2),
    r"\bnone\b": (0.09, 0.3),
    r";": (0.5, 1.3),
    r"\banother\b": (0.25, 1.2),
    r"\b(ask|say|refuse)(s|d|ed)?\b|\bsaid\b": (0.2, 1.0),
    r"\bbeside\b|\bof (its|their|our) own\b|, too\b": (0.02, 0.3),
    r"\b(somebody|nobody|whoever|everybody)\b": (0.01, 0.05),
}
"""Expressions that the pages have more often than other projects, per 1,000 words: the rate of the
documentation of Kubernetes, Istio and etcd, and the limit, which only goes down towards it."""
LEAST = {
    r"\byou\b": (3.4, 3.4),
    r"\bif you\b": (0.83, 0.8),
    r"\bfor example\b": (0.93, 0.93),
    r"\bcan\b": (4.7, 3.0),
    r"\bneeds? to\b": (0.77, 0.7),
}
"""Expressions that guide a reader: their rate there, and the limit, which only goes up."""
_INVISIBLE = re.compile(r"<!--.*?-->|^( *)```.*?^\1```|`[^`]*`", re.MULTILINE | re.DOTALL)


def unlike_the_field(pages: Iterable[str]) -> Iterator[str]:
    """Find expressions that pages have too often or too seldom, apart from code.

    Args:
        pages: Their texts.
    """
    text = _INVISIBLE.sub("", "\n".join(pages))
    words = len(re.findall(r"\S*\w\S*", text)) or 1
    for limits, is_upper in ((MOST, True), (LEAST, False)):
        for shape, (field, limit) in limits.items():
            rate = 1000 * len(re.findall(shape, text, re.IGNORECASE)) / words
            if rate > limit if is_upper else rate < limit:
                yield f"pages: {shape}: {rate:.2f} in 1,000 words, not {limit} (elsewhere {field})"


def unplain(texts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Find what messages and descriptions should not say.

    Args:
        texts: Where each stands, and the text.
    """
    for where, text in texts:
        for shape, instead in SHAPES.items():
            if found := re.search(shape, re.sub(r"«[^»]*»", "«»", text)):
                yield f"{where}: {found[0]!r} in {text!r}: {instead}"


def misplaced(texts: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Find commands of statuses that `statuses.shown` can not keep within the visible part.

    Args:
        texts: Where each stands, what kind of message it is, and the text.
    """
    for where, kind, text in texts:
        is_seen = where.startswith("src/") and "/diagnosis/" not in where
        found = _COMMAND.search(text) if is_seen and kind in ("status", "part") else None
        if found and not text[: found.start()].endswith(("run: ", " to ")):
            yield f"{where}: {text!r}: write CONDITION; run: COMMAND; MORE"


def refused(where: str, page: str) -> Iterator[str]:
    """Find commands of a page that Juju 3.6 or 4.0 refuses.

    Args:
        where: The page's name.
        page: Its text.
    """
    for shape, why in _REFUSED.items():
        for found in re.finditer(shape, page):
            yield f"{where}: {found[0]!r}: {why}"


def absent(where: str, page: str, tests: Collection[str], root: pathlib.Path) -> Iterator[str]:
    """Find tests that a page names and that are not there.

    Args:
        where: The page's name.
        page: Its text.
        tests: All that there are.
        root: Of the checkout, for files of tests.
    """
    for file, name in _NAMED.findall(page):
        there = _tests(root / file) if file else tests
        if name not in there:
            yield f"{where}: there is no test {name}{f' in {file}' if file else ''}"
    for file in _FILE.findall(page):
        if not (root / file).exists():
            yield f"{where}: there is no {file}"


def unheld(where: str, page: str) -> Iterator[str]:
    """Find promises of an explanation that name neither a test nor where they are known from.

    Args:
        where: The page's name.
        page: Its text.
    """
    blocks = [" ".join(block.split()) for block in _BLOCK.split(_FENCED.sub("", page))]
    notes = {
        block[2 : block.index("]:")]: block
        for block in blocks
        if re.match(r"\[\^[\w-]+\]:", block)
    }
    for name, note in notes.items():
        if not (_NAMED.search(note) or _FILE.search(note) or _SOURCE.search(note)):
            yield f"{where}: the note {name} names no test and no source"
    for block in blocks:
        if block.startswith(("[^", "#")) or not _PROMISE.search(block):
            continue
        named = [notes[name] for name in _NOTE.findall(block) if name in notes]
        if not (named or _NAMED.search(block) or _FILE.search(block)):
            yield f"{where}: a promise names no test: {block[:90]}"


def unproduced(where: str, page: str, tests: Collection[str]) -> Iterator[str]:
    """Find headings of the page of symptoms that no test produces by breaking something.

    Args:
        where: The page's name.
        page: Its text.
        tests: Those that break something, in a real cluster.
    """
    for section in re.split(r"^## ", _FENCED.sub("", page), flags=re.MULTILINE)[1:]:
        heading = section.partition("\n")[0]
        found = _PRODUCED.search(section)
        if found is None:
            yield f"{where}: no comment says which test produces {heading}"
        for name in " ".join(found[1].split()).split(", ") if found else ():
            if name not in tests:
                yield f"{where}: there is no test {name}, which produces {heading}"


def _tests(file: pathlib.Path) -> set[str]:
    return set(_DEFINED.findall(file.read_text())) if file.exists() else set()


def _texts(root: pathlib.Path) -> Iterator[tuple[str, str]]:
    for message in messages.all_of(root):
        yield message.line, message.text
    for name in ("config.yaml", "actions.yaml"):
        described: dict[str, Any] = yaml.safe_load((root / name).read_text())
        for key, value in described.get("options", described).items():
            yield f"{name}: {key}", " ".join(value["description"].split())
    rules = yaml.safe_load(
        (root / "src/prometheus_alert_rules/istio-integrator.rules").read_text()
    )
    for rule in (each for group in rules["groups"] for each in group["rules"]):
        for text in rule["annotations"].values():
            yield f"alert {rule['alert']}", text
    board = json.loads((root / "src/grafana_dashboards/istio-integrator.json").read_text())
    for panel in board["panels"]:
        yield f"dashboard: {panel['title']}", f"{panel['title']}: {panel.get('description', '')}"
    for target, text in re.findall(
        r"^([a-z-]+):.*## (.*)$", (root / "Makefile").read_text(), re.MULTILINE
    ):
        yield f"make {target}", text
    for file in sorted((root / "demo").glob("*.py")):
        for message in messages.read(file.read_text(), f"demo/{file.name}"):
            yield message.line, message.text


def all_of(root: pathlib.Path) -> Iterator[str]:
    """Check everything."""
    tests = {name for file in (root / "tests").rglob("*.py") for name in _tests(file)}
    for page in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        where, text = page.relative_to(root).as_posix(), page.read_text()
        yield from absent(where, text, tests, root)
        yield from refused(where, text)
        if page.parent.name == "explanation" and page.name not in _NO_PROMISES:
            yield from unheld(where, text)
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    yield from unlike_the_field(page.read_text() for page in pages if page.exists())
    symptoms = root / "docs/how-to/symptoms.md"
    breaking = {name for file in (root / "tests/e2e").rglob("*.py") for name in _tests(file)}
    yield from unproduced(symptoms.name, symptoms.read_text(), breaking)
    yield from commands.unrun(root)
    yield from unplain(_texts(root))
    yield from misplaced((each.line, each.kind, each.text) for each in messages.all_of(root))


def main() -> int:
    """Print what is wrong."""
    found = list(all_of(ROOT))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
