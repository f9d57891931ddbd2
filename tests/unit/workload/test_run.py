"""The whole of `run`: health, readiness, notices, and an orderly end."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
from pathlib import Path

import prometheus_client
import pytest
import structlog
from sidecar_lifecycle.shell import cli, logs
from sidecar_lifecycle.shell.commands import run, uninjected
from sidecar_lifecycle.shell.convergence import cluster as hands
from sidecar_lifecycle.shell.kube import lease

from integrator_contract import charm_facts, names, schema
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

VIRTUAL_TIME = True
RUNS = pods.running()


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


async def test_of_two_units_one_acts_and_the_other_takes_over(cluster: FakeApiserver):
    loop = asyncio.get_running_loop()
    other = lease.Leadership(
        cluster.client, namespace="kubeflow", name="app-lifecycle", identity="x", clock=loop.time
    )

    def written() -> set[tuple[str, str]]:
        return {each for each in cluster.requests if each[0] != "GET" and "/leases" not in each[1]}

    cluster.namespace("kubeflow", labels={"istio-injection": "enabled"})
    cluster.put("pods", pods.pod_json())
    cluster.put("pods", pods.pod_json(name="lost", uid="uid-l", proxy=pods.ended(), main=RUNS))
    async with running_task(other.run()) as leading:
        await other.wait_elected()
        program = program_of(
            cluster,
            "--joined=true",
            "--mesh-namespace=istio-system",
            "--replace-broken-pods=true",
        )
        async with running_task(program.run()):
            await until(lambda: all(program.ready().values()))
            await asyncio.sleep(120)
            assert written() == set()
            leading.cancel()
            await until(
                lambda: cluster.get("pods", "kubeflow", "job-x")["status"]["phase"] != "Running"
            )
            # Stopping a proxy writes nothing; what replaces the lost pod does, later.
            await until(written)


@pytest.mark.parametrize(
    ("options", "want"),
    [
        pytest.param(["--joined=true", "--mesh-namespace=istio-system"], 1, id="joined"),
        pytest.param(["--joined=true"], 1, id="istiod-outside-the-cluster"),
        pytest.param(["--joined=false", "--mesh-namespace=istio-system"], 0, id="not-joined"),
    ],
)
async def test_model_that_has_joined_is_converged_wherever_istiod_is(
    cluster: FakeApiserver, options: list[str], want: int
):
    cluster.namespace("kubeflow", labels={"istio-injection": "enabled"})
    cluster.put("pods", pods.pod_json(main=RUNS, policy="Always"))
    program = program_of(cluster, *options)
    async with running_task(program.run()):
        await until(lambda: all(program.ready().values()))
        await asyncio.sleep(60)
        found = program.registry.get_sample_value("sidecar_lifecycle_in_mesh_pods") or 0

    assert found == want


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
    server, cluster.client.server = cluster.client.server, "http://127.0.0.1:1"
    program = program_of(cluster)
    async with running_task(program.run()):
        await asyncio.sleep(60)
        assert program.ready() == {"lease": False, "watch": False}
        cluster.client.server = server
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
    assert settings.served().mesh_namespace == "istio-system"


async def test_progress_that_the_charm_has_seen_already_is_no_news(
    cluster: FakeApiserver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A hook that starts the service anew asks it by a command, and so knows what it counts."""
    cluster.namespace("kubeflow", labels={"istio-injection": "enabled"})
    # A pod that runs on: stopping a proxy would be progress, too.
    cluster.put("pods", pods.pod_json(RUNS, name="web-0"))
    file = tmp_path / "facts"
    given = ("--joined=true", "--mesh-namespace=istio-system", f"--charm-facts-file={file}")
    program = program_of(cluster, *given)
    told = []
    program.notifier.notify = lambda key, is_news: told.append((key, is_news))
    async with running_task(program.run()):
        await until(lambda: told)
        ((key, is_news),) = told
        decided, _ = await uninjected._look(hands.Cluster(cluster.client, program.settings))
        uninjected._list(decided.summary, [], [], program.settings.model)
        word = json.loads(capsys.readouterr().out.splitlines()[-1])["summary"]["word"]
        assert key == names.PROGRESS_NOTICE
        assert is_news()
        file.write_text(charm_facts.CharmFacts(progress="of before").document())
        assert is_news()
        file.write_text(charm_facts.CharmFacts(progress=word).document())
        assert not is_news()


def test_charm_of_another_contract_is_refused_by_name(capsys: pytest.CaptureFixture[str]):
    other = "0" * 8
    with pytest.raises(SystemExit, match="2"):
        arguments(f"--contract={other}")

    assert f"the charm keeps to contract {other}, this image" in capsys.readouterr().err


def test_charm_of_the_same_contract_is_served():
    assert arguments(f"--contract={schema.SCHEMA}").contract
