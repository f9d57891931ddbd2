"""The long tests: their parts, what became of each when it last ran, and a way to run one part.

    python -m tests.long_tests           print the table
    python -m tests.long_tests race      run the long tests of a part, and print theirs

A part is a word in the name of a module that has long tests: tests/e2e/test_shutdown_matrix.py is
of the parts `shutdown` and `matrix`. `make test-all` uses this; tests/conftest.py has the ledger
written whenever a long test runs.
"""

import argparse
import collections
import contextlib
import datetime
import io
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[1]
LEDGER = ROOT / "build/long-tests.json"
TIERS = ("tests/unit", "tests/functional", "tests/e2e")
SMALL_WORDS = {"test", "of", "with"}
Record = dict[str, Any]
"""Of one test: the day it ran `on`, its `seconds` and its `result`."""


class Ledger:
    """Keeps of each long test when it last ran, how long it took and how it ended."""

    def __init__(self, path: pathlib.Path, *, gathers: bool) -> None:
        """Keep them in a file, in the one process that gathers the reports of all."""
        self._path = path
        self._gathers = gathers
        self._running: dict[str, Record] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        """Mark the report: the process that gathers them has no items when tests run by xdist."""
        report = yield
        report.is_long = item.get_closest_marker("long") is not None
        return report

    def pytest_runtest_logreport(self, report):
        """Add up the phases of a test, and write after the last."""
        if not (self._gathers and report.is_long):
            return
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        record = self._running.setdefault(
            report.nodeid, {"on": today, "seconds": 0.0, "result": "passed"}
        )
        record["seconds"] = round(record["seconds"] + report.duration, 1)
        if report.outcome != "passed" and record["result"] != "failed":
            record["result"] = report.outcome
        if report.when == "teardown":
            self._path.parent.mkdir(exist_ok=True)
            records = read(self._path) | {report.nodeid: self._running.pop(report.nodeid)}
            self._path.write_text(json.dumps(records, indent=1))


def keep(config: pytest.Config, path: pathlib.Path = LEDGER) -> None:
    """Have a run of pytest keep what becomes of long tests, whichever of its processes this is."""
    is_worker = hasattr(config, "workerinput")
    config.pluginmanager.register(Ledger(path, gathers=not is_worker))


def read(path: pathlib.Path) -> dict[str, Record]:
    """Read what the ledger keeps, which is nothing on a fresh clone."""
    with contextlib.suppress(FileNotFoundError):
        return json.loads(path.read_text())
    return {}


def parts(module: str) -> set[str]:
    """Return the parts that a module of tests is of."""
    return {*pathlib.PurePath(module).stem.split("_")} - SMALL_WORDS


def of_part(tests: Iterable[str], part: str) -> list[str]:
    """Return the tests of a part.

    Raises:
        KeyError: No long test is of such a part; its message names those that there are.
    """
    tests = list(tests)
    known = set().union(*(parts(test.partition("::")[0]) for test in tests))
    if part not in known:
        raise KeyError(f"no part {part!r} of the long tests; there are {', '.join(sorted(known))}")
    return [test for test in tests if part in parts(test.partition("::")[0])]


def table(tests: Iterable[str], records: Mapping[str, Record]) -> list[str]:
    """Write a line for each test, or family of tests that differ by a parameter."""
    families: dict[str, list[Record]] = {}
    for test in tests:
        family = families.setdefault(test.partition("[")[0], [])
        family.append(records.get(test, {"on": "", "seconds": 0.0, "result": "never run"}))
    lines = [f"{'last run':10}  {'seconds':>8}  {'result':20}  long test"]
    for name, family in families.items():
        counts = collections.Counter(str(record["result"]) for record in family)
        results = ", ".join(f"{count} {each}" for each, count in sorted(counts.items()))
        last = max(str(record["on"]) for record in family)
        seconds = sum(float(record["seconds"]) for record in family)
        lines.append(f"{last or '-':10}  {seconds:8.1f}  {results:20}  {name}")
    return lines


class _Collector:
    """Takes the names of what pytest has collected."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_collection_finish(self, session):
        self.names = [item.nodeid for item in session.items]


def collected() -> list[str]:
    """Return the names of all long tests.

    Raises:
        SystemExit: Some module can't be read; pytest says which.
    """
    collector, said = _Collector(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-m", "long", *TIERS], plugins=[collector])
    if code != pytest.ExitCode.OK:
        sys.exit(said.getvalue())
    return collector.names


def run(tests: Iterable[str]) -> int:
    """Run the long tests of the modules of these tests, each tier by itself."""
    modules = sorted({test.partition("::")[0] for test in tests})
    codes = [0]
    for tier in TIERS:
        chosen = [module for module in modules if module.startswith(f"{tier}/")]
        if chosen and tier == "tests/e2e" and os.geteuid() != 0:
            print(f"left out, since starting a node needs root: {' '.join(chosen)}")
            codes.append(1)
        elif chosen:
            pytest_argv = [sys.executable, "-m", "pytest", "-m", "long", *chosen]
            codes.append(subprocess.run(pytest_argv, cwd=ROOT, check=False).returncode)
    return max(codes)


def main() -> int:
    """Run the long tests of a part, if one is named, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.long_tests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", nargs="?", help="run the long tests of it, and list no others")
    parser.add_argument("--check", action="store_true", help="only tell whether there is the part")
    args = parser.parse_args()
    tests = collected()
    if args.part:
        try:
            tests = of_part(tests, args.part)
        except KeyError as error:
            parser.error(error.args[0])
    if args.check:
        return 0
    code = run(tests) if args.part else 0
    print(*table(tests, read(LEDGER)), sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
