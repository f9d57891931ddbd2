"""A charm and an image of different revisions notice each other, and break nothing."""

import dataclasses

import ops
import pytest
from ops import testing

import charm
from integrator_contract import schema
from istio_integrator.admission import admission
from istio_integrator.kube import cluster
from istio_integrator.lifecycle import workload
from tests import asked
from tests.unit.charm import fake_cluster

OURS = schema.SCHEMA
OTHERS = [
    pytest.param(None, id="before there was one"),
    pytest.param("1", id="numbered"),
    pytest.param("0" * 8, id="another"),
]


def container(contract, service="", **layers):
    asked.SERVICE.says()
    execs = {asked.version(contract)}
    if service:
        plan = {"override": "replace", "command": service, "startup": "enabled"}
        layers = {workload.SERVICE: ops.pebble.Layer({"services": {workload.SERVICE: plan}})}
    statuses = {workload.SERVICE: ops.pebble.ServiceStatus.ACTIVE} if service else {}
    return testing.Container(
        "lifecycle", can_connect=True, execs=execs, layers=layers, service_statuses=statuses
    )


def hook(given, event=None, **options):
    ctx = testing.Context(charm.IstioIntegrator)
    state = testing.State(
        leader=True,
        containers={given},
        config=options,
        model=testing.Model("kubeflow", type="kubernetes"),
    )
    return ctx, ctx.run(event or ctx.on.config_changed(), state)


@pytest.fixture(autouse=True)
def connected(fake, monkeypatch):
    monkeypatch.setattr(admission, "PROBE_DELAYS", ())
    monkeypatch.setattr(cluster, "connect", fake.api)
    containers = [{"name": "lifecycle", "image": "registry/lifecycle:1"}]
    metadata = {"name": "istio-integrator-0", "namespace": "kubeflow"}
    spec = {"containers": containers}
    fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    fake_cluster.install_istio(fake)


@pytest.mark.parametrize("contract", OTHERS)
def test_other_image_is_said_in_the_status_and_nothing_is_started(fake, contract):
    _, out = hook(container(contract))

    assert isinstance(out.unit_status, ops.BlockedStatus)
    assert "juju refresh istio-integrator" in out.unit_status.message
    assert out.get_container("lifecycle").plan.services == {}


@pytest.mark.parametrize("contract", OTHERS)
def test_service_that_runs_in_another_image_goes_on(fake, contract):
    command = f"{asked.PROGRAM} run --model kubeflow --old true"
    running = container(contract, service=command)

    _, out = hook(running)

    after = out.get_container("lifecycle")
    assert (
        after.plan.services["lifecycle"].command
        == f"{asked.PROGRAM} run --model kubeflow --old true"
    )
    assert after.service_statuses == running.service_statuses


@pytest.mark.parametrize("contract", OTHERS)
def test_webhooks_servers_are_not_replaced_by_those_of_another_image(fake, contract):
    server = ("Deployment", "istio-integrator-admission", "kubeflow")

    hook(container(contract))
    assert fake.find(*server) is None

    hook(container(OURS))
    assert fake.find(*server)


def test_action_says_that_the_image_is_another(fake):
    ctx = testing.Context(charm.IstioIntegrator)

    with pytest.raises(
        testing.ActionFailed, match="lifecycle-image is too old; run: juju refresh"
    ):
        hook(container(None), ctx.on.action("list-uninjected"))


def test_image_is_asked_once_until_the_service_is_told(fake):
    first, out = hook(container(OURS))
    second, _ = hook(out.get_container("lifecycle"))

    commands = [
        [one.command[1] for one in ctx.exec_history.get("lifecycle", ())]
        for ctx in (first, second)
    ]
    assert commands == [["--version"], []]


def test_answer_by_another_contract_is_waited_for(fake, monkeypatch):
    def settled():
        return hook(container(OURS))[1].unit_status

    fake_cluster.install_istio(fake)
    monkeypatch.setattr(asked.SERVICE, "says", lambda: None)
    asked.Service.says(asked.SERVICE, contract="0" * 8)

    assert "the workload answers by contract 00000000" in settled().message


def test_refreshed_image_is_put_to_work(fake):
    _, out = hook(container(None))

    _, out = hook(asked.of_image(out.get_container("lifecycle"), OURS))

    assert "--contract" in out.get_container("lifecycle").plan.services["lifecycle"].command
    assert not isinstance(out.unit_status, ops.BlockedStatus)


def test_image_that_does_not_answer_is_waited_for(fake):
    broken = testing.Exec((asked.PROGRAM, "--version"), return_code=1, stderr="no python")

    silent = dataclasses.replace(container(OURS), execs={broken})
    _, out = hook(silent, **{"mesh-mode": "none"})

    assert out.unit_status == ops.WaitingStatus("the workload can't tell: no python")
