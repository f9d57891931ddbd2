"""The whole of `run`: readiness, settings that change, and the word of the contract."""

import asyncio
import json
import logging
from typing import Any

import pytest
import structlog
from sidecar_lifecycle.shell import cli, logs

from integrator_contract import names, namespaces, schema
from integrator_contract.service import Gateway
from tests.unit.api_server import Refused
from tests.unit.workload import pods, service_world
from tests.unit.workload.fake_apiserver import FakeApiserver, until

RUNS = pods.running()


async def test_gateways_are_watched_only_while_somebody_is_to_be_reached(cluster: FakeApiserver):
    def watched() -> set[str]:
        return {"gateways", "services"} & set(cluster.watchers.values())

    async with service_world.running(cluster) as service:
        await until(lambda: "namespaces" in cluster.watchers.values())
        await asyncio.sleep(30)
        assert watched() == set()
        service.change(gateway=Gateway())
        await until(lambda: watched() == {"gateways", "services"})
        service.change(gateway=Gateway(secrets=("kf-tls",)))
        await until(lambda: "secrets" in cluster.watchers.values())
        # Another option restarts no watch.
        before = set(cluster.watchers)
        service.change(restart_pods="manual")
        await asyncio.sleep(5)
        assert set(cluster.watchers) == before
        service.change(gateway=None)
        await until(lambda: watched() == set())


async def test_model_that_joins_and_leaves_is_converged_in_between(cluster: FakeApiserver):
    cluster.namespace("kf", labels={"istio-injection": "enabled"})
    cluster.put("pods", pods.pod_json(main=RUNS, policy="Always"))
    async with service_world.running(cluster) as service:
        await until(service.is_ready)
        assert await service.shows(0, "in_mesh_pods")
        service.change(joined=True)
        await until(lambda: service.shows(1, "in_mesh_pods"))
        service.change(joined=False)
        await until(lambda: service.shows(0, "in_mesh_pods"))


async def test_rules_about_proxies_change_while_it_runs(cluster: FakeApiserver):
    """A stop that was not wanted before is sent, and watches go on."""
    cluster.namespace("kf")
    agent: dict[str, Any] = {"agent": pods.running()}
    cluster.put("pods", pods.pod_json(name="model", others=agent))
    # A label does not make the mesh's namespace one of a profile.
    for name, application in (("kf-user", "mesh-2"), ("kf-team", "mesh"), ("mesh", "mesh-2")):
        owner = names.name_owner("kf", application)
        cluster.namespace(name, labels={names.PART_OF: names.PROFILE, names.SERVED_BY: owner})
        pod = pods.pod_json(name=name, uid=name, namespace=name, others=agent)
        cluster.put("pods", pod)

    def stopped() -> set[str]:
        return {name for name, proxy in cluster.proxies.items() if proxy.requests}

    async with service_world.running(cluster, mesh_namespace="mesh") as service:
        await until(service.is_ready)
        await asyncio.sleep(5)
        assert stopped() == set()
        only_model = frozenset[namespaces.Kind](("model",))
        service.change(ignore_containers=("agent",), served_namespaces=only_model)
        await until(stopped)
        await asyncio.sleep(5)
        assert stopped() == {"model"}
        service.change(served_namespaces=frozenset(namespaces.KINDS))
        await until(lambda: "kf-user" in stopped())
        await asyncio.sleep(5)
        assert stopped() == {"model", "kf-user"}


async def test_program_is_not_ready_while_the_apiserver_is_away(cluster: FakeApiserver):
    def is_away(method: str, path: str) -> None:
        raise Refused("away", 503)

    cluster.before_answer = is_away
    async with service_world.running(cluster) as service:
        await asyncio.sleep(60)
        async with service.scraped.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "[-] watch\n")
        # A restart would lose the stops in progress, and repair nothing.
        async with service.scraped.get("/livez") as answer:
            assert answer.status == 200
        cluster.before_answer = lambda *_: None
        await until(service.is_ready)


async def test_settings_file_is_followed_and_what_can_not_be_read_changes_nothing(
    cluster: FakeApiserver, capsys: pytest.CaptureFixture[str]
):
    log = structlog.get_logger("test")
    async with service_world.running(cluster, log_level="debug") as service:
        valid = service.file.read_text()
        contents = ("nonsense", valid, "nonsense", "", "{}", "[" * 9999, '"\xe4"', None)
        others = [valid.replace('"debug"', f'"{level}"') for level in ("info", "warning", "error")]
        for number, content in enumerate((*contents, *others)):
            service.file.unlink(missing_ok=True)
            if content is not None:
                service.file.write_text(content, "latin-1")
            await asyncio.sleep(3)
            await service.get("/seen")
            log.debug("quiet", number=number)
            log.warning("loud", number=number)

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    said = {(line["message"], line["number"]) for line in lines if "number" in line}
    debugged = {(word, number) for word in ("quiet", "loud") for number in range(8)}
    assert said == debugged | {("loud", 8), ("loud", 9)}
    assert [line["now"] for line in lines if line["message"] == "log level"] == ["debug", "info"]
    complaints = [line for line in lines if line["message"].startswith("file not read")]
    assert [str(service.file) in line["error"] for line in complaints] == [True] * 7
    assert sum(line["message"] == "file read again" for line in lines) == 2


def test_charm_of_another_contract_is_refused_by_name(capsys: pytest.CaptureFixture[str]):
    other = "0" * 8
    with pytest.raises(SystemExit, match="2"):
        cli.main(["run", "--settings=x", f"--contract={other}"])

    words = f"the charm keeps to contract {other}, this image to {schema.SCHEMA}: run both from"
    assert f"{words} the same revision of the charm\n" in capsys.readouterr().err


def test_what_libraries_warn_of_is_a_json_object_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    logs.configure_logs("info")
    logging.getLogger("asyncio").warning('%s isn\'t "done"\nyet', "task")
    logging.getLogger("asyncio").info("not about users")
    structlog.get_logger().info("ready", unit=0)
    structlog.get_logger().info("failed", exc_info=KeyError("x"))
    of_library, own, failed = map(json.loads, capsys.readouterr().err.splitlines())
    assert failed["exception"] == "KeyError: 'x'"
    want = {"level": "warning", "logger": "asyncio", "message": 'task isn\'t "done"\nyet'}
    assert {**of_library, "time": ""} == {**want, "time": ""}
    assert {**own, "time": ""} == {"level": "info", "message": "ready", "time": "", "unit": 0}
