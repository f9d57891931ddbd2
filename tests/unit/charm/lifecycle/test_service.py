"""The workload's service, and errors of its container."""

import dataclasses
import itertools
import socket
import time
import types

import ops
import pytest

from integrator_contract import schema, service
from tests import asked
from tests.unit.cases import cases
from tests.unit.charm.charm_world import state, told, workload

pytestmark = pytest.mark.usefixtures("installed")
GONE = ops.pebble.ConnectionError("no socket")
CHANGE = types.SimpleNamespace(tasks=[types.SimpleNamespace(log=["Most recent output: usage"])])


def status(ctx, given=None, **options):
    return ctx.run(ctx.on.config_changed(), given or state(**options)).unit_status


def breaks(monkeypatch, method, error):
    """Have Pebble fail at something."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(ops.Container, method, fail)


@cases(
    ("method", "error", "words"),
    service_that_exits_at_once=(
        "replan",
        ops.pebble.ChangeError("cannot perform:\n- cannot start", CHANGE),
        "lifecycle does not start: cannot start",
    ),
    container_gone=("replan", GONE, "lifecycle does not start: no socket"),
    gone_in_between=(
        "get_checks",
        TimeoutError(),
        "waiting for Pebble in lifecycle: TimeoutError",
    ),
    gone_from_the_start=("get_plan", GONE, "waiting for Pebble in lifecycle: no socket"),
    full_disk=("push", GONE, "lifecycle gets no settings: no socket"),
    lost_files=("pull", GONE, "the workload does not answer: it has no settings"),
)
def test_workload_in_trouble_is_waited_for(  # noqa: PLR0917 - a table
    ctx, monkeypatch, caplog, method, error, words
):
    breaks(monkeypatch, method, error)
    assert status(ctx).name == "waiting"
    assert f"waiting: {words}" in caplog.text


def test_service_that_does_not_listen_is_waited_for(ctx, monkeypatch):
    given = state()
    monkeypatch.setattr(service, "LISTENER_PORT", 1)
    # Each look at the clock is half a second later.
    monkeypatch.setattr(time, "monotonic", itertools.count(step=0.5).__next__)
    assert status(ctx, given).message.startswith("the workload does not answer: ")


def test_service_that_has_just_started_is_asked_again(ctx, monkeypatch):
    given, port = state(), service.LISTENER_PORT
    monkeypatch.setattr(service, "LISTENER_PORT", 1)
    monkeypatch.setattr(time, "sleep", lambda _: setattr(service, "LISTENER_PORT", port))
    assert status(ctx, given).name == "active"


def test_service_that_is_silent_is_waited_for(ctx, monkeypatch):
    given = state()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(service, "LISTENER_PORT", silent.getsockname()[1])
        monkeypatch.setitem(service.ANSWER_SECONDS, "GET", 0.1)
        assert status(ctx, given).message == "the workload does not answer: timed out"


def listing(*pods, contract=schema.SCHEMA, **summary):
    return asked.headed({"pods": pods, "summary": {**asked.SUMMARY, **summary}}, contract)


@cases(
    ("text", "words"),
    nothing=("", "is not understood"),
    no_json=("x", "is not understood"),
    no_contract=("{}", "is not understood"),
    list=("[1]", "is not understood"),
    deep=("[" * 9999, "is not understood"),
    no_count=(listing(eligible="many"), "is not understood"),
    no_pod=(listing({}), "is not understood"),
    two=(listing() * 2, "is not understood"),
    no_text=('{"contract": "\udce4"}', "is not understood"),
    another_contract=(listing(contract="another"), "by contract another"),
)
def test_answer_that_is_none_is_waited_for(ctx, text, words):
    given = state()
    asked.SERVICE.answer = 200, text.encode(errors="surrogateescape")
    shown = status(ctx, given)
    assert shown.name == "waiting"
    assert words in shown.message


@pytest.mark.parametrize("error", [GONE, ops.ModelError("gone"), RuntimeError("no service")])
def test_removal_goes_on_without_the_container(ctx, fake, monkeypatch, error):
    for name in ("mesh-2-convergence", "other"):
        fake.put("ConfigMap", name)
    breaks(monkeypatch, "stop", error)
    ctx.run(ctx.on.remove(), state(units=0))
    assert fake.find("ConfigMap", "mesh-2-convergence", "kf") is None


def test_layer_has_no_check_that_kills_the_container(ctx):
    """Juju's probes read the levels of checks. A service on a busy node has a minute to answer."""
    container = ctx.run(ctx.on.config_changed(), state()).get_container("lifecycle")
    layer, program = container.plan.to_dict(), "/usr/bin/sidecar-lifecycle run --settings /tmp"
    url, often = "http://localhost:8080", {"override": "replace", "period": "10s"}
    live = {**often, "timeout": "9s", "threshold": 6, "http": {"url": f"{url}/livez"}}
    ready = {**often, "timeout": "3s", "threshold": 3, "http": {"url": f"{url}/readyz"}}
    assert layer["checks"] == {"live": live, "ready": ready}
    assert layer["services"]["lifecycle"] == {
        "summary": "stops finished proxies, brings pods into the mesh",
        "command": f"{program}/sidecar-lifecycle.settings.json --contract {schema.SCHEMA}",
        "startup": "enabled",
        "override": "replace",
        "on-check-failure": {"live": "restart"},
    }
    assert [*container.service_statuses.values()] == [ops.pebble.ServiceStatus.ACTIVE]


def test_memory_of_the_workload_goes_with_the_application(ctx, fake):
    fake.application()
    earlier = {"kind": "ClusterRole", "name": "kf-mesh-2", "uid": "earlier"}
    fake.put("ConfigMap", "mesh-2-convergence", ownerReferences=[earlier])
    status(ctx, leader=False)
    assert fake.writes == []
    status(ctx)
    found = fake.find("ConfigMap", "mesh-2-convergence", "kf")["metadata"]
    (owner,) = found["ownerReferences"]
    assert owner["uid"] == fake.find("ClusterRole", "kf-mesh-2")["metadata"]["uid"]
    fake.writes.clear()
    status(ctx)
    assert fake.writes == []


@pytest.mark.parametrize("text", ["", "{}", "[" * 9999, '{"model": "\udce4"}'])
def test_settings_that_can_not_be_read_are_written_anew(ctx, tmp_path, text):
    file = tmp_path / "sidecar-lifecycle.settings.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    out = ctx.run(ctx.on.config_changed(), state(workload(files=tmp_path)))
    assert told(ctx, out).joined
    assert len(told(ctx, out).token) == 32


def test_token_stays_and_is_written_nowhere_else(ctx, fake, tmp_path):
    given = state(workload(files=tmp_path))
    out = ctx.run(ctx.on.config_changed(), given)
    token = told(ctx, out).token
    after = ctx.run(ctx.on.config_changed(), dataclasses.replace(given, config={"mtls": "strict"}))
    assert told(ctx, after).token == token
    assert token not in repr(told(ctx, after))
    assert token not in str(fake.objects)
