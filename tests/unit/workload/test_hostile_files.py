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
from hypothesis import given, settings
from hypothesis import strategies as st
from sidecar_lifecycle.model import bounded
from sidecar_lifecycle.shell import cli

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


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{last}'] * 9)}]\n"
    for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{last}'] * 9)}]}}\n"
    for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "json nested 1,000 deep": (pod("[" * 1000 + "]" * 1000), "nested deeper than 100"),
    "json nested 200 deep": (pod("[" * 200 + "]" * 200), "nested deeper than 100"),
    "json nested without end": (b'{"a":' * 150_000, "nested deeper than 100"),
    "json of many values": (pod("[" + "{}," * 300_000 + "0]"), "more than 400000 values"),
    "json integer of 5,000 digits": (pod("1" * 5000), "a number of 5000 characters"),
    "json half of a surrogate pair": (pod(r'"\ud800"'), "half of a surrogate pair"),
    "json not a number": (pod("NaN"), "NaN"),
    "yaml flow nested 100,000 deep": (b"[" * 100_000, "nested deeper than 100"),
    "yaml flow mapping nested": (b"a: " + b"{a: " * 100_000, "nested deeper than 100"),
    "yaml block nested 100,000 deep": (b"- " * 100_000, "nested deeper than 100"),
    "yaml bomb of aliases": (BOMB.encode(), "line 2 the alias *a"),
    "yaml bomb of merge keys": (MERGES.encode(), "line 2 the alias *a"),
    "yaml that contains itself": (b"&a {x: *a}", "line 1 the alias *a"),
    "yaml integer of 5,000 digits": (b"a: " + b"1" * 5000, "a number of 5000 characters"),
    "yaml tag": (b"kind: Pod\na: !!int x", "line 2 the tag tag:yaml.org,2002:int"),
    "yaml tag of Python": (b"!!python/object/apply:os.abort []", "the tag"),
    "yaml half of a surrogate pair": (rb'a: "\ud800"', "neither JSON nor YAML"),
    "yaml of many values": (b"- a\n" * 400_000, "more than 150000 values"),
    "yaml of many documents": (b"---\n" * 400_000, "more than 150000 values"),
    "yaml of many directives": (
        b"".join(b"%%TAG !a%d! x\n" % each for each in range(100_000)),
        "a line that begins with %",
    ),
    "yaml mapping as a key": (b"? {a: b}\n: c", "a list or mapping as a key"),
    "invalid bytes": (b"kind: \xff", "is not UTF-8 text"),
    "a file without end": (b"#" * (bounded.LARGEST + 1), "has more than 16384 KiB"),
    "a kind without end": (b'{"kind": "' + b"x" * MEBIBYTE + b'"}', "is not a Pod but xxx"),
}


PROGRAM = """
import gc, json, os, pathlib, sys
from sidecar_lifecycle.model import bounded_yaml
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


@pytest.fixture
def wanted(tmp_path: Path) -> Path:
    path = tmp_path / "settings.json"
    path.write_text('{"application": "a", "model": "m"}')
    return path


@pytest.mark.timeout(30)
@pytest.mark.parametrize("command", ["explain", "mutate"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_one_line_that_names_it(
    name: str, command: str, run: Run, tmp_path: Path, wanted: Path
):
    data, reason = HOSTILE[name]
    path = tmp_path / "pods"
    path.write_bytes(data)
    options = ["--settings", wanted] if command == "mutate" else []

    code, errors, memory = run(command, path, *options)

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
@pytest.mark.parametrize("command", ["mutate", "admission"])
def test_hostile_settings_end_in_one_line_that_names_them(
    command: str, data: bytes, reason: str, run: Run, tmp_path: Path
):
    path = tmp_path / "settings.json"
    path.write_bytes(data)
    (tmp_path / "pods").write_text(json.dumps(POD))
    rest = [tmp_path / "pods"] if command == "mutate" else ["--tls-dir", tmp_path]

    code, errors, memory = run(command, *rest, "--settings", path)

    assert code == 2
    assert len(errors.splitlines()) == 1
    assert str(path) in errors
    assert reason in errors
    assert 0 < memory < MOST_MEMORY


@pytest.mark.parametrize("command", ["explain", "mutate"])
def test_names_that_move_the_cursor_are_printed_escaped(
    command: str, tmp_path: Path, wanted: Path, capsys: pytest.CaptureFixture[str]
):
    metadata = {"name": "\x1b[2Jp\n\u202eq", "namespace": "m\r", "labels": {"a": "\x9b"}}
    containers = [{"name": "main\x1b[31m", "image": "x"}]
    path = tmp_path / "pods"
    path.write_text(json.dumps({**POD, "metadata": metadata, "spec": {"containers": containers}}))
    options = ["--settings", str(wanted)] if command == "mutate" else []

    assert cli.main([command, str(path), *options]) == 0

    out = capsys.readouterr().out
    assert r"m\r/\x1b[2Jp\n\u202eq: " in out
    assert out.replace("\n", "").isprintable()


def test_an_error_about_a_name_that_moves_the_cursor_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "pods"
    path.write_text(json.dumps({"kind": "\x1b[2J\nJob"}))

    assert cli.main(["explain", str(path)]) == 2

    assert capsys.readouterr().err.endswith("is not a Pod but \\x1b[2J\\nJob\n")


KEYS = ("1", "true", "1.5", "22:00", "=")
"""Kubernetes makes texts of the keys that YAML has as numbers and truth values."""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 22:00", "22:00"),
        ("a: =", "="),
        ("a: 2026-11-22", "2026-11-22"),
        ("a: 0x_", "0x_"),
        ("a: 017", 15),
        ("a: ~", None),
        ("a: yes", True),
        ("a: 1e3", "1e3"),
        ("a: 1.5", 1.5),
        ("a: '1'", "1"),
        ("a: !!str 1", "1"),
        ("a: ! 1", "1"),
        ("a: {<<: {b: 1}}", {"<<": {"b": 1}}),
        ("a: &unused [1, {b: []}]", [1, {"b": []}]),
        ("a: {1: x, true: x, 1.5: x, 22:00: x, =: x}", dict.fromkeys(KEYS, "x")),
    ],
)
def test_yaml_becomes_plain_values(text: str, value: object):
    assert list(bounded.documents(text.encode())) == [{"a": value}]


def test_a_pod_whose_keys_and_values_look_like_something_else_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "pods"
    labels = "{22:00: =, =: 22:00, 1: '1', yes: 'on'}"
    path.write_text(
        f"kind: Pod\nmetadata: {{name: p, labels: {labels}}}\nspec: {{containers: []}}"
    )

    assert cli.main(["explain", str(path)]) == 0

    assert capsys.readouterr().out.startswith("p: ignore (NoProxy)")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4))
def test_json_is_read_as_it_was_written(value: object):
    assert list(bounded.documents(json.dumps(value).encode())) == [value]


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text("{}[]:,-&*!?|>'\"%#~ \n\ta1", max_size=60))
def test_any_text_is_read_or_refused(text: bytes | str):
    data = text if isinstance(text, bytes) else text.encode()
    try:
        values = list(bounded.documents(data))
    except bounded.RefusedError as error:
        assert str(error)  # noqa: PT017
    else:
        assert all(isinstance(each, dict | list | str | int | float | None) for each in values)
