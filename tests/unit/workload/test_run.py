"""The whole of `run`: health, readiness, notices, and an orderly end."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import prometheus_client
import pytest
import structlog
from sidecar_lifecycle import cli, health, logs, notices, run

from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

VIRTUAL_TIME = True


@pytest.fixture
async def cluster() -> AsyncIterator[FakeApiserver]:
    fake = FakeApiserver()
    async with fake:
        fake.namespace("kubeflow")
        yield fake


def arguments(*extra: str) -> argparse.Namespace:
    base = ["run", "--model=kubeflow", "--application=app", "--unit=app/0", "--listen=127.0.0.1:0"]
    return cli.parser("run").parse_args([*base, *extra])


def program_of(cluster: FakeApiserver, *extra: str) -> run.Program:
    registry = prometheus_client.CollectorRegistry()
    return run.Program(cluster.client, run.settings_of(arguments(*extra)), registry)


async def test_program_leads_acts_and_gives_the_lease_away(cluster: FakeApiserver):
    cluster.put("pods", pods.pod_json())
    program = program_of(cluster)
    async with running_task(program.run()):
        await until(
            lambda: cluster.get("pods", "kubeflow", "job-x")["status"]["phase"] != "Running"
        )
        await until(lambda: all(program.ready().values()))
        lease = cluster.get("leases", "kubeflow", "app-lifecycle")
        assert lease["spec"]["holderIdentity"].startswith("app/0_")

    lease = cluster.get("leases", "kubeflow", "app-lifecycle")
    assert not lease["spec"].get("holderIdentity")


@pytest.mark.parametrize("wanted", [True, False])
async def test_gateways_are_watched_only_where_somebody_is_to_be_reached(
    cluster: FakeApiserver, wanted: bool
):
    program = program_of(cluster, f"--observe-gateways={str(wanted).lower()}")
    async with running_task(program.run()):
        await until(lambda: "namespaces" in cluster.watchers.values())
        await asyncio.sleep(30)
        watched = {"gateways", "services"} & set(cluster.watchers.values())
        assert watched == ({"gateways", "services"} if wanted else set())


async def test_program_is_not_ready_while_the_apiserver_is_away(cluster: FakeApiserver):
    server, cluster.client.transport.server = cluster.client.transport.server, "http://127.0.0.1:1"
    program = program_of(cluster)
    async with running_task(program.run()):
        await asyncio.sleep(60)
        assert program.ready() == {"lease": False, "watch": False}
        cluster.client.transport.server = server
        await until(lambda: all(program.ready().values()))


async def test_level_of_the_log_changes_while_it_runs(
    cluster: FakeApiserver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    level = tmp_path / "level"
    settings = run.settings_of(arguments(f"--log-level-file={level}"))
    program = run.Program(cluster.client, settings, prometheus_client.CollectorRegistry())
    logs.configure("info")
    log = structlog.get_logger("test")
    async with running_task(program.run()):
        for number, wanted in enumerate(("debug", "nonsense", "error", "info")):
            level.write_text(f"{wanted}\n")
            await asyncio.sleep(3)
            log.debug("quiet", number=number)
            log.warning("loud", number=number)

    lines = map(json.loads, capsys.readouterr().err.splitlines())
    said = [(line["message"], line.get("number")) for line in lines]
    assert [each for each in said if each[0] in ("quiet", "loud")] == [
        *(("quiet", 0), ("loud", 0)),
        *(("quiet", 1), ("loud", 1)),
        ("loud", 3),
    ]


def test_only_a_process_of_this_container_is_known_to_have_ended():
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert run.is_earlier_run("app/0", run.identity("app/0", gone.pid))
    assert not run.is_earlier_run("app/0", run.identity("app/0", os.getpid()))
    assert not run.is_earlier_run("app/0", run.identity("app/1", gone.pid))
    for holder in ("", "app/0", f"app/0_elsewhere_{gone.pid}", "app/0_x_y"):
        assert not run.is_earlier_run("app/0", holder)


def test_options_become_typed_settings():
    settings = run.settings_of(
        arguments(
            "--wait-for-containers=main, wait",
            "--lifecycle-namespaces=model,labelled",
            "--proxy-shutdown=false",
            "--mesh-namespace=istio-system",
            "--status-port=16020",
        )
    )
    assert settings.wait_for_containers == ("main", "wait")
    assert settings.lifecycle_namespaces == {"model", "labelled"}
    assert settings.policy().enabled is False
    assert settings.policy().status_port == 16020
    assert settings.scope().mesh_namespace == "istio-system"


def test_selector_that_can_not_be_read_is_bad_input(capsys: pytest.CaptureFixture[str]):
    code = cli.main(
        [
            "run",
            "--model=m",
            "--application=a",
            "--unit=a/0",
            "--excluded-pods=((",
            "--kubeconfig=x",
        ]
    )
    assert code == 2
    assert "selector" in capsys.readouterr().err


async def test_health_answers_by_condition():
    conditions = {"lease": True, "watch": False}
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Gauge("answer", "x", registry=registry).set(42)
    async with (
        health.serve("127.0.0.1:0", lambda: conditions, registry) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):

        async def get(path: str) -> tuple[int, str]:
            async with session.get(path) as response:
                return response.status, await response.text()

        assert await get("/livez") == (200, "ok\n")
        assert await get("/readyz") == (503, "[+] lease\n[-] watch\n")
        conditions["watch"] = True
        assert await get("/readyz") == (200, "[+] lease\n[+] watch\n")
        assert "answer 42" in (await get("/metrics"))[1]


@pytest.fixture
def pebble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that writes down how it was called."""
    program = tmp_path / "pebble"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexit ${{FAIL:-0}}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PEBBLE_SOCKET", str(tmp_path / "socket"))
    return program


async def test_many_wishes_within_the_gap_are_one_notice(pebble: Path):
    calls = pebble.parent / "calls"
    notifier = notices.Notifier(pebble)
    async with running_task(notifier.run()):
        for _ in range(50):
            notifier.notify(notices.MESH)
        await until(calls.exists)
        for _ in range(50):
            notifier.notify(notices.MESH)
        await until(lambda: len(calls.read_text().splitlines()) == 2)
        await asyncio.sleep(30)

    assert calls.read_text().splitlines() == ["notify istio-integrator.charmhub.io/mesh"] * 2


async def test_progress_is_told_at_once_and_then_seldom(pebble: Path):
    calls = pebble.parent / "calls"
    notifier = notices.Notifier(pebble)
    async with running_task(notifier.run()):
        for _ in range(60):
            notifier.notify(notices.PROGRESS)
            await asyncio.sleep(0.5)
        await asyncio.sleep(30)

    assert len(calls.read_text().splitlines()) == 4


async def test_failing_pebble_is_no_reason_to_end(pebble: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAIL", "1")
    notifier = notices.Notifier(pebble)
    async with running_task(notifier.run()) as task:
        notifier.notify(notices.PROGRESS)
        await until((pebble.parent / "calls").exists)
        await asyncio.sleep(5)
        assert not task.done()


async def test_without_pebble_nothing_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PEBBLE_SOCKET", raising=False)
    notifier = notices.Notifier(tmp_path / "absent")
    async with running_task(notifier.run()) as task:
        notifier.notify(notices.MESH)
        await asyncio.sleep(5)
        assert not task.done()
        assert not notifier.available
    assert os.environ.get("PEBBLE_SOCKET") is None
