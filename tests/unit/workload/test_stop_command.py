"""The command by which people and the charm's action stop one proxy."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from sidecar_lifecycle.shell.shutdown import stops

from integrator_contract import service
from tests import workload_access
from tests.unit.workload import fake_apiserver, pods


async def ask(cluster: fake_apiserver.FakeApiserver, tmp_path: Path, name: str) -> int:
    async with cluster as client:
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": client.server}}],
            "users": [{"name": "x", "user": {"token": cluster.token}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        settings = tmp_path / "settings.json"
        told = service.Options(model="m", application="a", unit="a/0")
        settings.write_text(told.document())
        argv = ["stop", name, "--namespace", "default", "--settings", str(settings)]
        return await asyncio.to_thread(workload_access.main, path, argv)


@pytest.fixture
def cluster() -> fake_apiserver.FakeApiserver:
    found = fake_apiserver.FakeApiserver()
    found.namespace("default")
    found.put("pods", pods.pod_json(name="done", uid="1", namespace="default"))
    found.put("pods", pods.pod_json(pods.running(), name="busy", uid="2", namespace="default"))
    found.put("pods", pods.pod_json(name="kept", uid="3", namespace="default", annotations=KEPT))
    return found


KEPT = {"istio-integrator.charmhub.io/proxy-shutdown": "disabled"}


def phase(cluster: fake_apiserver.FakeApiserver, name: str) -> str:
    return cluster.get("pods", "default", name)["status"]["phase"]


async def test_proxy_of_a_finished_pod_is_stopped(
    cluster: fake_apiserver.FakeApiserver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert await ask(cluster, tmp_path, "done") == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["decision"], row["result"], row["transport"]) == (
        "stop",
        "acknowledged",
        "port-forward",
    )
    assert phase(cluster, "done") == "Succeeded"


async def test_the_other_way_is_taken_where_one_is_closed(
    cluster: fake_apiserver.FakeApiserver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cluster.denied = lambda _, path: path.endswith("portforward")
    assert await ask(cluster, tmp_path, "done") == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["result"], row["transport"]) == ("acknowledged", "exec")
    assert phase(cluster, "done") == "Succeeded"


async def test_proxy_that_ends_before_its_answer_is_out_counts_as_stopped(
    cluster: fake_apiserver.FakeApiserver,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(stops, "CATCH_UP", 2.5)
    cluster.proxies["done"].mode = "cut"
    assert await ask(cluster, tmp_path, "done") == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["result"], row["transport"]) == ("acknowledged", "port-forward")
    assert cluster.proxies["done"].requests == ["port-forward"]


@pytest.mark.parametrize(("name", "decision"), [("busy", "wait"), ("kept", "ignore")])
async def test_pod_that_must_not_be_stopped_is_left_alone(
    cluster: fake_apiserver.FakeApiserver,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    decision: str,
):
    assert await ask(cluster, tmp_path, name) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["name"], row["decision"]) == (name, decision)
    assert "result" not in row
    assert phase(cluster, name) == "Running"


async def test_pod_that_is_not_there_is_named(
    cluster: fake_apiserver.FakeApiserver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert await ask(cluster, tmp_path, "gone") == 2
    assert "default/gone" in capsys.readouterr().err
