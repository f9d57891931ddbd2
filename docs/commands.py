"""The commands of README.md and the how-to pages, and who runs them.

A comment right above a block says it, `<!-- run by: test_x -->` or `<!-- not run: WHY -->`; one
that stands elsewhere is for all blocks below it that have none. The words of every block are
checked however that is: tests/unit/test_docs_commands.py, tests/functional/test_docs_commands.py.

Usage: python docs/commands.py   (prints each block's line)
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent

RUN, NOT_RUN = "run by", "not run"
_LINES = re.compile(
    rf"^#+ (?P<heading>[^\n]*)$"
    rf"|^ *<!-- (?P<kind>{RUN}|{NOT_RUN}): (?P<what>[^>]*?) -->\n(?P<above> *```)?"
    rf"|^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_PROGRAMS = (
    "curl",
    "istioctl",
    "juju",
    "kubectl",
    "make",
    "promtool",
    "python",
    "sed",
    "skopeo",
    "timedatectl",
)
_SHELL = """
told() { printf '%s\\0' "$#" "$@" >>"$TOLD"; }
command_not_found_handle() { told "$@"; }
"""


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    """From the checkout's root."""
    line: int
    section: str
    """The heading above."""
    language: str
    text: str
    kind: str = ""
    """`run by`, `not run`, or nothing."""
    what: str = ""
    """The test, or why not."""


def blocks(root: pathlib.Path, language: str = "console") -> Iterator[Block]:
    """Yield the blocks of one language, as in `console` for commands."""
    for path in [root / "README.md", *sorted((root / "docs/how-to").glob("*.md"))]:
        if path.exists():
            for block in of_page(path.relative_to(root).as_posix(), path.read_text()):
                if block.language == language:
                    yield block


def of_page(name: str, text: str) -> Iterator[Block]:
    """Yield the blocks of a page, each with what is said of who runs it."""
    section, default, own = "", ("", ""), None
    at = 0
    while found := _LINES.search(text, at):
        at = found.end()
        if found["heading"] is not None:
            section = found["heading"]
        elif found["kind"]:
            said = (found["kind"], " ".join(found["what"].split()))
            own, default = (said, default) if found["above"] else (None, said)
            at -= len(found["above"] or "")
        else:
            line = text.count("\n", 0, found.start()) + 1
            kind, what = own or default
            body = "".join(
                each.removeprefix(found["indent"]) for each in found["text"].splitlines(True)
            )
            yield Block(name, line, section, found["language"], body, kind, what)
            own = None


def words(texts: Iterable[str]) -> list[list[str]]:
    """Have a shell read commands of one page, in their order, and return the words of each.

    Nothing is run: in the place of each program, known or not, its words are written down.
    """
    programs = [f'{name}() {{ told {name} "$@"; }}' for name in _PROGRAMS]
    with tempfile.TemporaryDirectory() as folder:
        told = pathlib.Path(folder) / "told"
        told.touch()
        bash = shutil.which("bash") or "bash"
        subprocess.run(
            [bash, "-c", "\n".join([_SHELL, *programs, *texts])],
            cwd=folder,
            env={"PATH": folder, "TOLD": str(told), "HOME": os.devnull},
            stdin=subprocess.DEVNULL,
            check=True,
        )
        parts = told.read_text().split("\0")[:-1]
    found: list[list[str]] = []
    while parts:
        end = int(parts[0]) + 1
        found.append(parts[1:end])
        parts = parts[end:]
    return found


def unrun(root: pathlib.Path) -> Iterator[str]:
    """Find blocks of which nothing is said, or a test that does not read their page."""
    readers = {path: path.read_text() for path in (root / "tests").rglob("test_*.py")}
    for block in blocks(root):
        where = f"{block.page}:{block.line}"
        if not block.what:
            yield f"{where}: no comment says which test runs these commands, or why none does"
        if block.kind != RUN:
            continue
        for test in block.what.split(", "):
            defined = re.compile(rf"^ *(?:async )?def {re.escape(test)}\(", re.MULTILINE)
            holders = [text for text in readers.values() if defined.search(text)]
            stem = pathlib.PurePosixPath(block.page).stem
            if not holders:
                yield f"{where}: there is no test {test}"
            elif not any(f'"{stem}"' in text or f"{stem}.md" in text for text in holders):
                yield f"{where}: the module of {test} does not name the page {stem}"


def main() -> None:
    """Print the table."""
    for block in blocks(ROOT):
        print(f"{block.page}:{block.line} ({block.section}) {block.kind}: {block.what}")


if __name__ == "__main__":
    main()
