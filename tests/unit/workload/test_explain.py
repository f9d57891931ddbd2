"""The command by which people and the charm ask what would be done about pods."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from sidecar_lifecycle.shell import cli

from integrator_contract import names, schema, service
from testbed import command_line
from tests.unit.cases import cases
from tests.unit.workload import pods

ENDED = {"stop": "2026-01-01T00:01:00Z", "wait": ""}
FIELDS = {"namespace", "name", "decision", "reason", "message", "containers"}


def explain(
    text: str, *options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    path = tmp_path / "pods.json"
    path.write_text(text)
    code = cli.main(["explain", str(path), *options])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def listed(*items: dict[str, Any], kind: str = "List") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "items": list(items)}


DONE, BUSY = pods.pod_json(name="done"), pods.pod_json(pods.running(), name="busy")
BARE = {key: value for key, value in DONE.items() if key not in ("kind", "apiVersion")}


@cases(
    ("text", "want"),
    json=(json.dumps(DONE), ["stop"]),
    pretty_json=(json.dumps(DONE, indent=2), ["stop"]),
    json_list=(json.dumps(listed(DONE, BUSY)), ["stop", "wait"]),
    podlist=(json.dumps(listed(BARE, kind="PodList")), ["stop"]),
    empty_list=(json.dumps(listed()), []),
    list_without_items=(json.dumps({**listed(), "items": None}), []),
)
def test_pods_are_read_however_they_are_given(
    text: str, want: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, out, err = explain(text, tmp_path=tmp_path, capsys=capsys)

    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [row["decision"] for row in rows] == want
    assert all(set(row) >= FIELDS for row in rows)
    assert [row.get("ended", "") for row in rows] == [ENDED[each] for each in want]


def test_help_has_an_example_in_each_line(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        cli.main(["explain", "--help"])
    text = capsys.readouterr().out
    assert text.endswith(
        "\nexamples:\n  kubectl get pods -o json | sidecar-lifecycle explain\n"
        "  sidecar-lifecycle explain pod.json --admission-settings settings.json\n"
    )
    assert max(map(len, text.splitlines())) < 80


def test_pod_of_the_standard_input_is_explained_with_the_names_that_are_odd(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    annotations = {names.IGNORE_CONTAINERS: "agent", names.WAIT_FOR_CONTAINERS: "mian"}
    odd = pods.pod_json(others={"agent": pods.running()}, annotations=annotations)

    class Stdin:
        buffer = io.BytesIO(json.dumps(odd).encode())

    monkeypatch.setattr("sys.stdin", Stdin)
    assert cli.main(["explain"]) == 0
    where, why = {"namespace": "kf", "name": "job-x"}, {"message": "main ended with 0"}
    told = {"decision": "stop", "reason": "PayloadFinished", "ended": ENDED["stop"]}
    lists = {"containers": ["main"], "unknown": ["mian"], "holding": ["agent"]}
    assert json.loads(capsys.readouterr().out) == where | why | told | lists


def test_settings_of_the_service_decide_as_in_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    text = json.dumps(pods.pod_json(others={"agent": pods.running()}))
    file = tmp_path / "service.json"
    for values, want in (
        ({}, "wait"),
        ({"ignore_containers": ("agent",)}, "stop"),
        ({"wait_for_containers": ("main", "x")}, "stop"),
        ({"wait_for_containers": ("main",), "status_port": 0}, "stop"),
    ):
        told = service.Options(model="m", application="a", unit="a/0", **values)
        file.write_text(told.encode())
        _, out, _ = explain(text, "--settings", str(file), tmp_path=tmp_path, capsys=capsys)
        row = json.loads(out)
        assert (row["decision"], row.get("ended", "")) == (want, ENDED[want])


SETTINGS = {"application": "a", "model": "m"}
MAIN = {"containers": [{"name": "main"}]}
LABELS = {"app.kubernetes.io/name": "a"}


def new_pod(spec: dict[str, Any] = MAIN, **metadata: str) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"labels": LABELS, **metadata}, "spec": spec}


NEW_PODS = (
    new_pod(name="one", namespace="m"),
    new_pod({**MAIN, "hostNetwork": True}, generateName="two-", namespace="other"),
    new_pod(name="three"),
    # The rule is one for the model.
    new_pod(name="four", namespace="m-2"),
)


def test_settings_add_what_admission_would_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(SETTINGS))
    options = ("--admission-settings", str(settings))
    text = json.dumps(listed(*NEW_PODS))
    code, out, _ = explain(text, *options, tmp_path=tmp_path, capsys=capsys)

    first, second, third, fourth = (json.loads(line)["admission"] for line in out.splitlines())
    assert code == 0
    assert (first["applied"], first["skipped"]) == (["excluded"], [])
    assert [operation["op"] for operation in first["patch"]] == ["add", "add"]
    assert third == first
    assert "excluded" not in fourth["applied"]
    assert (second["applied"], second["patch"]) == ([], [])
    assert second["skipped"][0]["reason"] == "HostNetwork"


def test_reader_that_ends_early_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, errors = tmp_path / "pods.json", io.StringIO()
    path.write_text(json.dumps(DONE))
    monkeypatch.setattr("sys.stderr", errors)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as pipe:
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(pipe, write_through=True))
        assert cli.main(["explain", str(path)]) == 0
    assert errors.closed


@cases(
    "arguments",
    nothing=[],
    unknown_command=["dance"],
    missing_option=["run"],
    missing_settings=["admission", "--tls-dir", "x"],
)
def test_wrong_command_line_is_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_version_has_that_of_the_contract(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    versions = f"{command_line.version()} (contract {schema.SCHEMA})"
    assert capsys.readouterr().out == f"sidecar-lifecycle {versions}\n"
