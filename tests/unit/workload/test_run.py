"""The whole of `run`: health, readiness, notices, and an orderly end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from sidecar_lifecycle.shell import cli, metrics, run
from sidecar_lifecycle.shell.convergence import cluster as hands
from sidecar_lifecycle.shell.convergence import listing
from sidecar_lifecycle.shell.settings import Live, ServiceSettings

from integrator_contract import charm_facts, names, namespaces, schema
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

VIRTUAL_TIME = True
RUNS = pods.running()


def settings(**values: Any) -> ServiceSettings:
    return ServiceSettings(model="kubeflow", application="app", unit="app/0", **values)


def program_of(cluster: FakeApiserver, path: Path | None = None, **values: Any) -> run.Program:
    live = Live(settings(**values), path)
    return run.Program(cluster.client, live, listen=("127.0.0.1", 0), port=0)


async def test_unit_that_does_not_lead_writes_nothing_but_stops_proxies(cluster: FakeApiserver):
    def written() -> set[tuple[str, str]]:
        return {each for each in cluster.requests if each[0] != "GET"}

    cluster.namespace("kubeflow", labels={"istio-injection": "enabled"})
    owned = [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]
    broken = {"proxy": pods.ended(), "main": RUNS, "ownerReferences": owned}
    cluster.put("pods", pods.pod_json(name="lost", uid="uid-l", **broken))
    values = {"joined": True, "mesh_namespace": "istio-system", "delete_broken_pods": True}
    program = program_of(cluster, **values)
    async with running_task(program.run()):
        await until(lambda: all(program.ready().values()))
        await asyncio.sleep(120)
        assert written() == set()
        cluster.put("pods", pods.pod_json())
        await until(
            lambda: cluster.get("pods", "kubeflow", "job-x")["status"]["phase"] != "Running"
        )
        program.live.change(settings(leader=True, **values))
        await until(lambda: ("DELETE", "/api/v1/namespaces/kubeflow/pods/lost") in written())


async def test_gateways_are_watched_only_while_somebody_is_to_be_reached(cluster: FakeApiserver):
    def watched() -> set[str]:
        return {"gateways", "services"} & set(cluster.watchers.values())

    program = program_of(cluster)
    async with running_task(program.run()):
        await until(lambda: "namespaces" in cluster.watchers.values())
        await asyncio.sleep(30)
        assert watched() == set()
        program.live.change(settings(gateway=""))
        await until(lambda: watched() == {"gateways", "services"})
        program.live.change(settings())
        await until(lambda: watched() == set())


async def test_model_that_joins_and_leaves_is_converged_in_between(cluster: FakeApiserver):
    def in_mesh() -> float | None:
        return metrics.REGISTRY.get_sample_value("sidecar_lifecycle_in_mesh_pods")

    cluster.namespace("kubeflow", labels={"istio-injection": "enabled"})
    cluster.put("pods", pods.pod_json(main=RUNS, policy="Always"))
    program = program_of(cluster)
    async with running_task(program.run()):
        await until(lambda: all(program.ready().values()))
        assert in_mesh() == 0
        program.live.change(settings(joined=True))
        await until(lambda: in_mesh() == 1)
        program.live.change(settings())
        await until(lambda: in_mesh() == 0)


async def test_rules_about_proxies_change_while_it_runs(cluster: FakeApiserver):
    """A stop that was not wanted before is sent, and watches go on."""
    cluster.namespace("kubeflow")
    cluster.namespace("alice", labels={names.PART_OF: names.PROFILE})
    agent = {"agent": pods.running()}
    cluster.put("pods", pods.pod_json(name="model", uid="1", others=agent))
    cluster.put("pods", pods.pod_json(name="tenant", uid="2", namespace="alice", others=agent))
    program = program_of(cluster)

    def stopped() -> set[str]:
        return {name for name, proxy in cluster.proxies.items() if proxy.requests}

    def watched() -> set[str]:
        return {each.pod.metadata.name for each in program.shutdown.view}

    async with running_task(program.run()):
        await until(lambda: watched() == {"model", "tenant"})
        assert stopped() == set()
        only_model = frozenset[namespaces.Kind](("model",))
        program.live.change(settings(ignore_containers=("agent",), served_namespaces=only_model))
        await until(lambda: stopped() == {"model"} and watched() == {"model"})
        program.live.change(settings(ignore_containers=("agent",)))
        await until(lambda: stopped() == {"model", "tenant"})


async def test_program_is_not_ready_while_the_apiserver_is_away(cluster: FakeApiserver):
    server, cluster.client.server = cluster.client.server, "http://127.0.0.1:1"
    program = program_of(cluster)
    async with running_task(program.run()):
        await asyncio.sleep(60)
        assert program.ready() == {"watch": False}
        cluster.client.server = server
        await until(lambda: all(program.ready().values()))


async def test_settings_file_is_followed_and_what_can_not_be_read_changes_nothing(
    cluster: FakeApiserver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "settings.json"
    program = program_of(cluster, file)
    log = structlog.get_logger("test")
    contents = (
        settings(log_level="debug").document(),
        "nonsense",
        "",
        "{}",
        "[" * 9999,
        '"\xe4"',
        None,
    )
    async with running_task(program.run()):
        for number, content in enumerate((*contents, settings(log_level="error").document())):
            file.write_text(content, "latin-1") if content is not None else file.unlink()
            await asyncio.sleep(3)
            log.debug("quiet", number=number)
            log.warning("loud", number=number)

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    said = {(line["message"], line["number"]) for line in lines if "number" in line}
    assert said == {(word, number) for word in ("quiet", "loud") for number in range(7)}
    complaints = [line for line in lines if line["message"].startswith("file not read")]
    assert len(complaints) == 6


async def test_progress_that_the_charm_has_seen_already_is_no_news(
    cluster: FakeApiserver,
):
    """A hook that asks the service knows what it counts."""
    cluster.namespace("kubeflow", labels={"istio-injection": "enabled"})
    # A pod that runs on: stopping a proxy would be progress, too.
    cluster.put("pods", pods.pod_json(RUNS, name="web-0"))
    given = {"joined": True, "mesh_namespace": "istio-system"}
    program = program_of(cluster, **given)
    told = []
    program.notifier.notify = lambda key, is_news: told.append((key, is_news))
    async with running_task(program.run()):
        await until(lambda: told)
        ((key, is_news),) = told
        model = hands.ModelClient(cluster.client, program.live)
        word = (await listing.uninjected(model, {})).summary.word
        assert key == names.PROGRESS_NOTICE
        assert is_news()
        before = charm_facts.CharmFacts(looked=1.0, progress="of before")
        program.live.change(settings(facts=before, **given))
        assert is_news()
        known = charm_facts.CharmFacts(looked=2.0, progress=word)
        program.live.change(settings(facts=known, **given))
        assert not is_news()


def test_charm_of_another_contract_is_refused_by_name(capsys: pytest.CaptureFixture[str]):
    other = "0" * 8
    with pytest.raises(SystemExit, match="2"):
        cli.main(["run", "--settings=x", f"--contract={other}"])

    assert f"the charm keeps to contract {other}, this image" in capsys.readouterr().err


def test_charm_of_the_same_contract_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "settings.json"
    assert cli.main(["run", f"--settings={file}", f"--contract={schema.SCHEMA}"]) == 2
    assert str(file) in capsys.readouterr().err
