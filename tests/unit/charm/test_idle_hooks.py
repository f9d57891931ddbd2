"""Hooks that end before they load anything: what start does anyway, and what nobody listens to."""

import dataclasses
import pathlib

import ops
import pytest
from ops import testing

import charm
from istio_integrator import idle_hooks
from tests.unit.charm import charm_world, fake_cluster, hook_process
from tests.unit.charm.charm_world import state

LEFT = ("tracing-relation-created", "config-changed")
MESH = testing.Relation("service-mesh", remote_app_name="kfp-api")


@pytest.fixture
def unit(tmp_path):
    return hook_process.Unit(tmp_path)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    unit = hook_process.Unit(tmp_path_factory.mktemp("installed"))
    assert "ops" in unit.hook("install")
    return unit


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    unit = hook_process.Unit(tmp_path_factory.mktemp("started"))
    unit.hook("install")
    unit.hook("start")
    return unit


def test_hooks_between_install_and_start_do_not_even_load_ops(installed):
    for event in LEFT:
        imported = installed.hook(event)
        assert "istio_integrator.idle_hooks" in imported
        assert "ops" not in imported


@pytest.mark.parametrize("event", ["leader-elected", "update-status"])
def test_other_hooks_before_start_are_dealt_with(installed, event):
    assert "istio_integrator.order" in installed.hook(event)


@pytest.mark.parametrize("event", LEFT)
def test_hooks_after_start_are_dealt_with(started, event):
    assert "istio_integrator.order" in started.hook(event)


@pytest.mark.parametrize("event", LEFT)
def test_pod_that_replaces_one_which_never_started_waits_for_no_install(unit, event):
    """Juju runs no install there, and the mark went with the folder."""
    assert "istio_integrator.order" in unit.hook(event)


def test_who_joins_or_departs_costs_nothing(unit):
    assert "ops" not in unit.hook("tracing-relation-joined")
    assert "ops" not in unit.hook("tracing-relation-departed")


def test_hooks_are_idle_that_nobody_listens_to(monkeypatch, tmp_path):
    heard: set[str] = set()
    observe = ops.Framework.observe

    def noting(framework: ops.Framework, event: ops.BoundEvent, observer: object) -> None:
        heard.add(event.event_kind)
        observe(framework, event, observer)

    monkeypatch.setattr(ops.Framework, "observe", noting)
    ctx = testing.Context(charm.IstioIntegrator)
    with ctx(ctx.on.update_status(), state()) as manager:
        endpoints = manager.charm.meta.relations
    for endpoint in endpoints:
        for what in ("created", "joined", "changed", "departed", "broken"):
            hook = f"{endpoint}-relation-{what}"
            is_heard = hook.replace("-", "_") in heard
            assert idle_hooks.is_idle(f"hooks/{hook}", tmp_path) != is_heard, hook


def test_start_does_what_was_left_to_it(fake, monkeypatch, tmp_path):
    charm_world.connect(fake, monkeypatch)
    fake_cluster.install_istio(fake)
    root = charm_world.root(tmp_path)
    ctx = testing.Context(charm.IstioIntegrator, charm_root=root)
    out = ctx.run(ctx.on.install(), dataclasses.replace(state(), relations=[MESH]))
    assert (fake.requests, out.unit_status) == ([], testing.UnknownStatus())
    out = ctx.run(ctx.on.start(), out)
    assert isinstance(out.unit_status, ops.ActiveStatus)
    assert fake.labels("kubeflow")["istio-injection"] == "enabled"


def test_hook_in_a_folder_of_its_own_does_not_write_into_the_checkout(fake, monkeypatch, tmp_path):
    def written():
        files = pathlib.Path(charm.__file__).parents[1].glob("*.yaml")
        return {file: file.stat().st_mtime_ns for file in files}

    before = written()
    charm_world.connect(fake, monkeypatch)
    ctx = testing.Context(charm.IstioIntegrator, charm_root=charm_world.root(tmp_path))
    ctx.run(ctx.on.install(), state())
    assert written() == before
