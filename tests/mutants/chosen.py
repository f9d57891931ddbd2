"""Which tests are to notice a change: those that run its line, as coverage has seen."""

import ast
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping

import coverage
import pytest

from tests.mutants.changes import ROOT, Change

LONGEST_TEST = 10.0
"""Seconds of a test that is never chosen: fuzzers, and what waits for real time.

Without those of its fixtures, of which the session's take as long and are others' as well.
"""


@dataclasses.dataclass(frozen=True)
class Suite:
    """Tests that run together, and what they are about."""

    name: str
    tests: tuple[str, ...]
    """Folders and modules."""
    about: tuple[str, ...]
    """Folders; when a file in one of them changes, it is seen anew which test runs what."""
    processes: int
    limit: float
    """Seconds that the tests chosen for one change took altogether, without their fixtures."""
    word: str = ""
    """What a module has to name to be one of the suite."""

    def modules(self, root: pathlib.Path) -> list[str]:
        """Return the modules of the suite in a checkout."""
        found = (path for name in self.tests for path in _below(root / name))
        return [
            str(path.relative_to(root))
            for path in sorted(found)
            if path.match("test_*.py") and self.word in path.read_text()
        ]

    def helpers(self, root: pathlib.Path) -> list[str]:
        """Return what stands behind all modules of the suite."""
        found = (path for name in self.tests for path in _below(root / name))
        return [str(path.relative_to(root)) for path in found if not path.match("test_*")]


def _below(path: pathlib.Path) -> list[pathlib.Path]:
    return [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]


WORKLOAD = Suite(
    "workload", ("tests/unit/workload",), ("workload", "lib/integrator_contract"), 2, 30
)
CHARM = Suite(
    *("charm", ("tests/unit/charm", "tests/unit/test_docs_ingress.py")),
    *(("src", "templates", "lib/integrator_contract"), 2, 30),
)
_BOTH = *WORKLOAD.about, *CHARM.about
FUNCTIONAL = {
    WORKLOAD: Suite(
        *("functional-workload", ("tests/functional",), _BOTH, 3, 60), word="sidecar_lifecycle"
    ),
    CHARM: Suite("functional-charm", ("tests/functional",), _BOTH, 3, 60),
}
"""The functional tests that may notice what the unit tests of a suite do not."""


class Collected:
    """What each test of a suite runs, and how long it takes."""

    def __init__(self, suite: Suite, root: pathlib.Path, folder: pathlib.Path) -> None:
        """Read what was kept of it.

        Raises:
            FileNotFoundError: Nothing was.
        """
        self.suite = suite
        self._root = root
        self.tests = json.loads((folder / f"{suite.name}.json").read_text())
        self._data = coverage.CoverageData(str(folder / f"{suite.name}.coverage"))
        self._data.read()
        self.failed = sorted(name for name, seen in self.tests.items() if seen["failed"])
        self._lines: dict[str, dict[int, set[str]]] = {}
        self._modules: dict[str, set[str]] = {}
        self._texts = {
            str(pathlib.Path(file).relative_to(root)): pathlib.Path(file).read_text()
            for file in sorted(self._data.measured_files())
        }

    def lines(self, file: str) -> dict[int, set[str]]:
        """Return the tests that run each line of a file; importing it counts for none."""
        if file not in self._lines:
            contexts = self._data.contexts_by_lineno(str(self._root / file))
            self._lines[file] = {
                line: set().union(*map(self._of_context, filter(None, names)))
                for line, names in contexts.items()
            }
        return self._lines[file]

    def _of_context(self, context: str) -> set[str]:
        """Return the tests that a context of coverage stands for."""
        name, _, phase = context.rpartition("|")
        return self._beside(name) if phase == "setup" else {name}

    def _beside(self, test: str) -> set[str]:
        """Return all tests of a test's module: what it sets up may be theirs, too."""
        if not self._modules:
            for name in self.tests:
                self._modules.setdefault(_module(name), set()).add(name)
        return self._modules.get(_module(test), set()) | {test}

    def running(self, change: Change) -> set[str]:
        """Return the tests that run what is changed."""
        if not change.file.endswith(".py"):
            template = change.file.partition("/")[2]
            found = {name for name, seen in self.tests.items() if template in seen["templates"]}
            setups = (name for name, seen in self.tests.items() if template in seen["set_up"])
            return found.union(*map(self._beside, setups))
        text = self._texts.get(change.file, "")
        lines, names = affected(text, change.start[0])
        if not names:
            by_line = self.lines(change.file)
            return set().union(*(by_line.get(line, ()) for line in lines))
        return set().union(
            *(
                self.lines(file).get(line, ())
                for file, line in _naming(self._texts, names)
                if (file, line) != (change.file, change.start[0])
            )
        )

    def choice(self, change: Change) -> list[str]:
        """Return the tests that are to notice a change, in the order of running them.

        One that failed without any change is none of them: it could tell nothing.
        """
        running = self.running(change)
        seconds = {
            name: seen["seconds"]
            for name, seen in self.tests.items()
            if name in running and not seen["failed"]
        }
        return choose(seconds, self.suite.limit, f"test_{pathlib.Path(change.file).stem}.py")

    def longest(self, tests: Iterable[str]) -> float:
        """Return the seconds after which tests can be taken to have no end."""
        seen = (self.tests[name] for name in tests)
        return 60 + 3 * sum(each["seconds"] + each["around"] for each in seen)


def affected(text: str, line: int) -> tuple[range, set[str]]:
    """Return the lines of the statement at a line, and the names that it gives a value to.

    There are names only of what is run when the module is imported, which is no test's: the tests
    are those of the lines that use the names.
    """
    function: ast.AST | None = None
    innermost: ast.stmt | None = None
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        innermost = node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node
    if innermost is None:
        return range(line, line + 1), set()
    lines = range(innermost.lineno, (innermost.end_lineno or 0) + 1)
    if innermost is function and function is not None:
        # In its head: whoever runs the body has run what stands there, or its default.
        return lines, set()
    if function is not None:
        body = getattr(innermost, "body", None)
        return (range(innermost.lineno, body[0].lineno) if body else lines), set()
    names = {
        node.id
        for node in ast.walk(innermost)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return lines, names


def _naming(texts: Mapping[str, str], names: set[str]) -> Iterator[tuple[str, int]]:
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")
    for file, text in texts.items():
        if pattern.search(text):
            for number, line in enumerate(text.splitlines(), start=1):
                if pattern.search(line):
                    yield file, number


def choose(seconds: Mapping[str, float], limit: float, named: str = "") -> list[str]:
    """Choose tests that together take no longer than a limit.

    For a third of it the quickest, which look at little and closely; as long those of a module
    with a certain name; then one of each module in turn, for modules look at a line from different
    sides. Those of a module stand together, so that it is imported once.
    """
    left, chosen = limit, dict[str, None]()
    quickest = sorted(
        (name for name in seconds if seconds[name] <= LONGEST_TEST),
        key=lambda name: (seconds[name], name),
    )
    modules: dict[str, list[str]] = {}
    for name in quickest:
        modules.setdefault(_module(name), []).append(name)
    of_name = [name for name in quickest if _module(name).rpartition("/")[2] == named]
    turns = range(max(map(len, modules.values()), default=0))
    in_turn = (names[turn] for turn in turns for names in modules.values() if turn < len(names))
    for candidates, rest in ((quickest, limit * 2 / 3), (of_name, limit / 3), (in_turn, 0)):
        for name in candidates:
            if name not in chosen and left - seconds[name] >= rest:
                chosen[name] = None
                left -= seconds[name]
    order = list(modules)
    return sorted(chosen, key=lambda name: order.index(_module(name)))


def _module(test: str) -> str:
    return test.partition("::")[0]


def digest(root: pathlib.Path, folders: Iterable[str]) -> str:
    """Return a word for what some folders hold."""
    state = hashlib.sha256()
    for folder in folders:
        for path in sorted((root / folder).rglob("*")) or [root / folder]:
            if path.is_file() and "__pycache__" not in path.parts:
                state.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return state.hexdigest()[:16]


def collect(suite: Suite, copy: pathlib.Path, folder: pathlib.Path) -> Collected:
    """See which test of a suite runs what, where something has changed since that was seen.

    Raises:
        SystemExit: Pytest can't run them.
    """
    modules = {name: digest(copy, [name]) for name in suite.modules(copy)}
    now = {"about": digest(copy, (*suite.about, *suite.helpers(copy))), "modules": modules}
    kept, seen = folder / f"{suite.name}.state", folder / f"{suite.name}.json"
    before = json.loads(kept.read_text()) if kept.exists() else {"about": "", "modules": {}}
    if now["about"] != before["about"]:
        before["modules"] = {}
    changed = [name for name, word in modules.items() if before["modules"].get(name) != word]
    if changed:
        print(f"{suite.name}: seeing which test runs what, in {len(changed)} modules", flush=True)
        kept.unlink(missing_ok=True)
        new = folder / f"{suite.name}.new.json"
        code = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", *changed, "-m", "not long", "-q", "--tb=short"),
                *(f"--numprocesses={suite.processes}", "--dist=loadfile", "--hypothesis-seed=0"),
                *("--cov", "--cov-context=test", "--cov-report="),
                *(["--cov-append"] if before["modules"] else []),
                *("-p", "tests.mutants.seen", f"--seen={new}"),
            ],
            cwd=copy,
            env={**os.environ, "COVERAGE_FILE": str(folder / f"{suite.name}.coverage")},
            check=False,
        ).returncode
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            sys.exit(f"the suite {suite.name} can't be run: pytest ended with {code}")
        old = json.loads(seen.read_text()) if before["modules"] else {}
        as_before = {*modules} - {*changed}
        merged = {name: each for name, each in old.items() if _module(name) in as_before}
        seen.write_text(json.dumps({**merged, **json.loads(new.read_text())}, indent=1))
        kept.write_text(json.dumps(now))
    return Collected(suite, copy, folder)


def renewed(copy: pathlib.Path) -> None:
    """Make a folder hold the files of the checkout, and touch none that is as it should be."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for path in [*copy.rglob("*")]:
        name = str(path.relative_to(copy))
        made = {"__pycache__", "build", ".hypothesis", ".pytest_cache"} & {
            *path.parts[len(copy.parts) :]
        }
        if path.is_file() and not made and name not in files:
            path.unlink()
    for name in files:
        target, source = copy / name, ROOT / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode)
