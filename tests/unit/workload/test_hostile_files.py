"""Files that are meant to hurt whoever gives them to `explain`, `mutate` or `admission`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sidecar_lifecycle.shell import cli, explain

ROOT = Path(__file__).parents[3]
WORKLOAD = f"{ROOT / 'workload'}:{ROOT / 'lib'}"
MEBIBYTE = 1024 * 1024
MOST_MEMORY = 200 * MEBIBYTE
POD = {
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "m"},
    "spec": {"containers": [{"name": "main"}]},
}


def pod(value: str) -> bytes:
    """Write a pod in JSON with something of any kind in its annotations."""
    text = json.dumps({**POD, "metadata": {"name": "p", "annotations": {"a": "@"}}})
    return text.replace('"@"', value).encode()


HOSTILE = {
    "json nested 1,000 deep": (pod("[" * 1000 + "]" * 1000), "nests more than 64"),
    "json nested 200 deep": (pod("[" * 200 + "]" * 200), "nests more than 64"),
    "json nested without end": (b'{"a":' * 150_000, "nests more than 64"),
    "json of many values": (pod("[" + "{}," * 300_000 + "0]"), "more than 400000 values"),
    "json integer of 5,000 digits": (pod("1" * 5000), "a number of 5000 characters"),
    "json half of a surrogate pair": (pod(r'"\ud800"'), "surrogates not allowed"),
    "json not a number": (pod("NaN"), "NaN"),
    "yaml": (b"kind: Pod", "is no JSON"),
    "invalid bytes": (b"kind: \xff", "is no JSON: 'utf-8' codec"),
    "a file without end": (b"#" * (explain.LARGEST + 1), "more than 16777216"),
    "a kind without end": (b'{"kind": "' + b"x" * MEBIBYTE + b'"}', "is not a Pod"),
}


PROGRAM = """
import gc, json, os, pathlib, sys
from sidecar_lifecycle.shell import cli
from sidecar_lifecycle.shell.admission import server
cli.parser()
gc.freeze()
for line in sys.stdin:
    arguments, outputs = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for number, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), number)
    code = cli.main(arguments)
    print(pathlib.Path("/proc/self/status").read_text())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
"""
"""Runs the command line in a process of its own for each line of arguments, imported once."""

Run = Callable[..., tuple[int, str, int]]
"""The program with arguments: its exit code, its errors, and its largest memory in bytes."""


@pytest.fixture(scope="module")
def forking() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": WORKLOAD},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


@pytest.fixture
def run(forking: subprocess.Popen[str], tmp_path: Path) -> Run:
    out, errors = tmp_path / "out", tmp_path / "errors"

    def run(*arguments: object) -> tuple[int, str, int]:
        assert forking.stdin
        assert forking.stdout
        forking.stdin.write(json.dumps([[*map(str, arguments)], [str(out), str(errors)]]) + "\n")
        forking.stdin.flush()
        code = int(forking.stdout.readline())
        largest = re.search(r"^VmHWM:\s+(\d+) kB$", out.read_text(), re.MULTILINE)
        return code, errors.read_text(), int(largest[1]) * 1024 if largest else 0

    return run


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_one_line_that_names_it(name: str, run: Run, tmp_path: Path):
    data, reason = HOSTILE[name]
    path = tmp_path / "pods"
    path.write_bytes(data)

    code, errors, memory = run("explain", path)

    assert code == 2
    assert len(errors.splitlines()) == 1
    assert str(path) in errors
    assert reason in errors
    assert len(errors) < 1200
    assert 0 < memory < MOST_MEMORY


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b'{"application": "\xff"}', "UTF-8", id="invalid bytes"),
        pytest.param(b'{"application": "\\ud800", "model": "m"}', "surrogate", id="surrogate"),
        pytest.param(b'{"a":' * 200_000, "recursion", id="nested"),
        pytest.param(b'{"application": ' + b"1" * 5000 + b"}", "out of range", id="integer"),
        pytest.param(b" " * (MEBIBYTE + 1), "more than 1024 KiB", id="long"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "admission"])
def test_hostile_settings_end_in_one_line_that_names_them(
    command: str, data: bytes, reason: str, run: Run, tmp_path: Path
):
    path = tmp_path / "settings.json"
    path.write_bytes(data)
    (tmp_path / "pods").write_text(json.dumps(POD))
    rest = {
        "explain": [tmp_path / "pods", "--admission-settings", path],
        "admission": ["--tls-dir", tmp_path, "--settings", path],
    }

    code, errors, memory = run(command, *rest[command])

    assert code == 2
    assert len(errors.splitlines()) == 1
    assert str(path) in errors
    assert reason in errors
    assert 0 < memory < MOST_MEMORY


def test_names_that_move_the_cursor_are_printed_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    metadata = {"name": "\x1b[2Jp\n\u202eq", "namespace": "m\r", "labels": {"a": "\x9b"}}
    containers = [{"name": "main\x1b[31m", "image": "x"}]
    path = tmp_path / "pods"
    path.write_text(json.dumps({**POD, "metadata": metadata, "spec": {"containers": containers}}))

    assert cli.main(["explain", str(path)]) == 0

    assert capsys.readouterr().out.replace("\n", "").isprintable()


def test_an_error_about_a_name_that_moves_the_cursor_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "\x1b[2J\npods"

    assert cli.main(["explain", str(path)]) == 2

    assert "\\x1b[2J\\npods" in capsys.readouterr().err
