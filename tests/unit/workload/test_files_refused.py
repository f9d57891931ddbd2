"""Files and places that commands cannot use: exit code 2 and one line that names them."""

import json
from pathlib import Path

import pytest
from sidecar_lifecycle.shell import cli

from integrator_contract import service
from tests.unit.cases import cases

POD = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}


def annotated(value: str) -> bytes:
    """Write a pod with any JSON value in its annotations."""
    text = json.dumps({**POD, "metadata": {"name": "p", "annotations": {"a": "@"}}})
    return text.replace('"@"', value).encode()


def refused(path: Path, arguments: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main([*map(str, arguments)]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert str(path) in line
    assert len(line) < 1200
    return line


@cases(
    ("data", "reason"),
    annotation_nested_deep=(annotated("[" * 1000 + "]" * 1000), "recursion"),
    nested_without_end=(b'{"a":' * 150_000, "recursion"),
    integer_of_5_000_digits=(annotated("1" * 5000), "out of range"),
    half_of_a_surrogate_pair=(annotated(r'"\ud800"'), "hex escape"),
    not_a_number=(annotated("NaN"), "malformed"),
    yaml=(b"kind: Pod", "malformed"),
    invalid_bytes=(b'{"kind": "\xff"}', "utf-8"),
    kind_without_end=(b'{"kind": "' + b"x" * 1_000_000 + b'"}', "not a Pod"),
    empty=(b"", "truncated"),
    two_documents=(json.dumps(POD).encode() * 2, "trailing"),
    text=(b'"text"', "Expected `object`"),
    job=(b'{"kind": "Job"}', "not a Pod"),
    no_kind=(json.dumps({**POD, "kind": ""}).encode(), "not a Pod"),
    list_item=(b'{"kind": "List", "items": [{"kind": "Secret"}]}', "not a Pod"),
    wrong_type=(json.dumps({**POD, "spec": {"containers": "x"}}).encode(), "Expected `array`"),
    items=(b'{"kind": "List", "items": 3}', "Expected `array"),
)
def test_pods_that_cannot_be_read_are_named(
    data: bytes, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "pods"
    path.write_bytes(data)

    assert reason in refused(path, ["explain", path], capsys)


OF_RUN = {
    "unknown field `hold`": "missing required field `unit`",
    "are no object": "got `array`",
}
"""What the service says of its own settings instead."""


@pytest.mark.parametrize("command", ["explain", "admission", "run"])
@cases(
    ("data", "reason"),
    unknown_name=(b'{"application": "a", "model": "m", "hold": true}', "unknown field `hold`"),
    empty=(b"", "truncated"),
    incomplete=(b"{}", "missing required field"),
    list=(b"[]", "are no object"),
    invalid_bytes=(b'{"application": "\xff"}', "utf-8"),
    surrogate=(b'{"application": "\\ud800", "model": "m"}', "surrogate"),
    nested=(b'{"a":' * 200_000, "recursion"),
    integer=(b'{"application": ' + b"1" * 5000 + b"}", "out of range"),
    absent=(None, "No such file"),
)
def test_settings_that_cannot_be_used_are_named(
    command: str, data: bytes, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "settings.json"
    if data is not None:
        path.write_bytes(data)
    (tmp_path / "pods").write_text(json.dumps(POD))
    rest = {
        "explain": [tmp_path / "pods", "--admission-settings", path],
        "admission": ["--tls-dir", tmp_path, "--settings", path],
        "run": ["--settings", path],
    }

    if command == "run":
        reason = OF_RUN.get(reason, reason)
    assert reason in refused(path, [command, *rest[command]], capsys)


def test_folder_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert "directory" in refused(tmp_path, ["explain", tmp_path], capsys)


def test_webhook_without_a_certificate_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    settings = tmp_path / "settings.json"
    settings.write_text('{"application": "a", "model": "m"}')
    arguments = ["admission", "--settings", settings, "--tls-dir", tmp_path]
    assert "can't serve: " in refused(tmp_path / "tls.crt", arguments, capsys)


def test_names_that_move_the_cursor_are_printed_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    metadata = {"name": "\x1b[2Jp\n\u202eq", "namespace": "m\r", "labels": {"a": "\x9b"}}
    containers = [{"name": "main\x1b[31m", "image": "x"}]
    path = tmp_path / "pods"
    path.write_text(json.dumps({**POD, "metadata": metadata, "spec": {"containers": containers}}))

    assert cli.main(["explain", str(path)]) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()

    assert cli.main(["explain", str(tmp_path / "\x1b[2J\npods")]) == 2
    assert "\\x1b[2J\\npods" in capsys.readouterr().err


@cases("variables", without_variables={}, without_an_account={"HOST": "10.1.1.1", "PORT": "443"})
def test_service_outside_of_a_pod_says_so(
    variables: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    for name, value in variables.items():
        monkeypatch.setenv(f"KUBERNETES_SERVICE_{name}", value)
    path = tmp_path / "settings.json"
    path.write_text(service.Options(model="m", application="a", unit="a/0").encode())
    service.name_results_file(path).write_text("nonsense")

    assert cli.main(["run", "--settings", str(path)]) == 2
    assert "no cluster to connect to" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["8443", "host:", "host:http", "host:65536"])
def test_an_address_without_a_port_is_refused(address: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["admission", "--settings", "s", "--tls-dir", "t", "--listen", address])

    assert "is not [HOST]:PORT" in capsys.readouterr().err


def test_servers_listen_on_every_address_or_on_the_given_one():
    read, run = cli.make_parser().parse_args, ["run", "--settings=s"]
    admission = read(["admission", "--settings=s", "--tls-dir=t"])
    assert (admission.listen, admission.health) == (("", 8443), ("", 8080))
    found = [read([*run, *each]).listen for each in ([], ["--listen=[fd00::1]:65535"])]
    assert found == [("", 8080), ("fd00::1", 65535)]
