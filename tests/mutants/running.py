"""Runs tests against a change in a copy of the checkout, in a process that is born with libraries.

Importing what the tests stand on takes seconds and is the same each time, so it is done once and
the process forks; what the checkout holds is imported after that, from the copy.
"""

import contextlib
import dataclasses
import importlib
import os
import pathlib
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

import pytest

from testbed import cluster
from tests.mutants.changes import ROOT

LIBRARIES = (
    *("aiohttp", "aiohttp.web", "cryptography.x509", "hypothesis", "hypothesis.strategies"),
    *("jinja2", "lightkube", "lightkube.generic_resource", "msgspec", "numpy", "ops.testing"),
    *("prometheus_client", "pydantic", "scenario", "structlog", "tenacity", "yaml"),
)


@dataclasses.dataclass(frozen=True)
class Ended:
    """How tests ended."""

    how: str
    """`passed`, `failed`, `broken` when not even their modules could be imported, `too long`."""
    by: str
    """The test that failed first."""
    seconds: float


class ControlPlane:
    """The control plane that the functional tests of all changes share.

    It is started for the first that needs it, and anew where a change may have left something in
    it that fails the tests of the next one.
    """

    def __init__(self) -> None:
        self._testbed = cluster.Testbed(f"mutants-{os.getpid()}")
        self._is_up = False

    def start(self) -> None:
        """Have one; tests/functional/conftest.py finds it by its name."""
        if not self._is_up:
            self._is_up = True
            self._testbed.up(cluster.Options(control_plane_only=True))
            os.environ["FUNCTIONAL_TESTBED"] = self._testbed.name

    def end(self) -> None:
        """End it, if there is one."""
        if self._is_up:
            os.environ.pop("FUNCTIONAL_TESTBED", None)
            self._testbed.down()
            self._is_up = False


def import_libraries() -> None:
    """Import what the tests stand on, once."""
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


@contextlib.contextmanager
def changed(path: pathlib.Path, text: str) -> Iterator[None]:
    """Have a file hold another text for a while."""
    before, stat = path.read_bytes(), path.stat()
    path.write_text(text)
    # Python takes compiled code for that of any source of the same length and second.
    os.utime(path, (stat.st_atime, stat.st_mtime + 7))
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, (stat.st_atime, stat.st_mtime))


def run(copy: pathlib.Path, tests: Sequence[str], *, seconds: float, work: pathlib.Path) -> Ended:
    """Run tests until the first that fails.

    Args:
        copy: Of the checkout.
        tests: By their names in pytest.
        seconds: After which they are ended.
        work: A folder for what they say and leave.
    """
    began = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _in_child(copy, tests, work, writing)
    os.close(writing)
    watched = os.pidfd_open(child)
    in_time = bool(select.select([watched], [], [], seconds)[0])
    if not in_time:
        # Pytest takes down what its tests have started, if it still can.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGINT)
        select.select([watched], [], [], 20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(watched)
    with os.fdopen(reading) as pipe:
        by = pipe.readline().strip()
    how = "too long" if not in_time else {0: "passed", 1: "failed"}.get(code, "broken")
    return Ended(how, by, round(time.monotonic() - began, 1))


class _First:
    """Names each test that fails, or module that can't be imported, at once."""

    def __init__(self, file: int) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report):
        if report.failed:
            os.write(self._file, f"{report.nodeid}\n".encode())

    pytest_collectreport = pytest_runtest_logreport


def _in_child(copy: pathlib.Path, tests: Sequence[str], work: pathlib.Path, file: int) -> NoReturn:
    code = 70
    try:
        os.setsid()
        # Whoever was started in the background of a shell ignores it, and its children do.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(copy)
        said = os.open(work / "said", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(said, number)
        for name in [*sys.modules]:
            if name.partition(".")[0] in ("tests", "testbed"):
                del sys.modules[name]
        sys.path[:] = [str(copy), *(each for each in sys.path if each not in ("", str(ROOT)))]
        sys.dont_write_bytecode = True
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(work / "hypothesis")
        importlib.invalidate_caches()
        options = ["-x", "-q", "--tb=short", "--hypothesis-seed=0", f"--basetemp={work / 'tmp'}"]
        options += ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
        # Of hypothesis, which is imported before pytest could rewrite it.
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        code = int(pytest.main([*options, *tests], plugins=[_First(file)]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
