"""How options and mesh reach the workload."""

import dataclasses
import shlex

from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import schema
from istio_integrator.lifecycle import command_line, layer
from tests.unit.charm.lifecycle.world import context


def options_of(argv: list[str]) -> dict[str, str]:
    assert argv[:2] == ["/usr/bin/sidecar-lifecycle", "run"]
    assert len(argv) % 2 == 0
    return dict(zip(argv[2::2], argv[3::2], strict=True))


def test_command_line_of_a_member(fake):
    assert options_of(command_line.run(context(fake), joined=True)) == {
        "--contract": schema.SCHEMA,
        "--model": "kubeflow",
        "--application": "app",
        "--unit": "app/0",
        "--joined": "true",
        "--mesh-namespace": "istio-system",
        "--mesh-revision": "default",
        "--membership": "namespace",
        "--data-plane": "sidecar",
        "--included-pods": "",
        "--excluded-pods": "",
        "--lifecycle-namespaces": "labelled,model,profiles",
        "--proxy-shutdown": "true",
        "--wait-for-containers": "",
        "--ignore-containers": "",
        "--status-port": "15020",
        "--replace-broken-pods": "false",
        "--convergence": "auto",
        "--restart-max-unavailable": "2",
        "--observe-gateways": "false",
        "--gateway-service": "",
        "--listen": ":8080",
        "--log-level-file": "/tmp/sidecar-lifecycle.log-level",
        "--charm-facts-file": "/tmp/sidecar-lifecycle.charm-facts.json",
    }


def test_command_line_converges_only_members(fake):
    assert options_of(command_line.run(context(fake), joined=False))["--convergence"] == "off"
    manual = context(fake, restart_pods="manual")
    assert options_of(command_line.run(manual, joined=True))["--convergence"] == "manual"


def test_gateways_are_observed_where_somebody_is_to_be_reached(fake):
    exposing = dataclasses.replace(context(fake), exposes=True)
    assert options_of(command_line.run(exposing, joined=True))["--observe-gateways"] == "true"


@given(st.sampled_from(["a=b", "a in (b, c),!d", "a='x"]))
def test_layer_keeps_arguments_apart(selector):
    argv = ["run", "--included-pods", selector, "--empty", ""]
    command = layer.pebble_layer(argv)["services"]["lifecycle"]["command"]
    assert shlex.split(command) == argv


def test_layer_has_no_check_that_kills_the_container():
    written = layer.pebble_layer(["run"])
    assert all("level" not in check for check in written["checks"].values())
    assert written["services"]["lifecycle"]["on-check-failure"] == {"live": "restart"}


def test_status_port_is_read_back(fake):
    argv = command_line.run(context(fake), joined=True)
    command = layer.pebble_layer(argv)["services"]["lifecycle"]["command"]
    assert command_line.status_port(command) == 15020


@given(st.text())
def test_command_line_of_somebody_else_tells_no_port_or_one(text):
    port = command_line.status_port(text)
    assert port is None or port >= 0
