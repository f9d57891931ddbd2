"""The workload's settings, and statuses for its answers."""

import dataclasses
import pathlib
import stat

import ops
import pytest
from ops import testing

from integrator_contract import service
from istio_integrator.config.config import Config
from tests.unit.cases import cases
from tests.unit.charm import ingress_world
from tests.unit.charm.charm_world import SETTINGS, results, state, status, told, workload

pytestmark = pytest.mark.usefixtures("installed")


OPTIONS = [
    ("proxy_shutdown", False, False),
    ("wait_for_containers", "main, wait", ("main", "wait")),
    ("ignore_containers", "vault-agent", ("vault-agent",)),
    ("delete_broken_pods", True, True),
    ("served_namespaces", "model", {"model"}),
    ("excluded_pods", "app in (a, b)", "app in (a, b)"),
    ("included_pods", "app=ui", "app=ui"),
    ("restart_pods", "manual", "manual"),
    ("restart_max_unavailable", "5", "5"),
    ("restart_max_unavailable", " 10% ", "10%"),
    ("log_level", "debug", "debug"),
]


def test_no_option_of_the_workload_is_forgotten():
    shared = {each.name for each in dataclasses.fields(service.Options)} & {*Config.model_fields}
    assert {option for option, *_ in OPTIONS} == shared


@pytest.mark.parametrize(("option", "value", "expected"), OPTIONS)
def test_option_reaches_the_workload_without_a_restart(ctx, option, value, expected):
    before = ctx.run(ctx.on.config_changed(), state())
    after = ctx.run(ctx.on.config_changed(), state(**{option: value}))
    assert getattr(told(ctx, after), option) == expected
    assert after.get_container("lifecycle").plan == before.get_container("lifecycle").plan


def test_settings_are_only_for_the_workload_and_written_when_they_change(
    ctx, monkeypatch, tmp_path
):
    written = []
    push = ops.Container.push

    def note(container, path, content, **how):
        written.append(pathlib.PurePath(path).name)
        push(container, path, content, **how)

    monkeypatch.setattr(ops.Container, "push", note)
    given = state(workload(files=tmp_path), included_pods="app=ui")
    out = ctx.run(ctx.on.config_changed(), given)
    files = out.get_container("lifecycle").get_filesystem(ctx)
    both = [SETTINGS, service.name_results_file(SETTINGS)]
    assert [stat.S_IMODE((files / each).stat().st_mode) for each in both] == [0o600] * 2
    assert written == [each.name for each in both]
    ours = {"model": "kf", "application": "mesh-2", "unit": "mesh-2/3", "leader": True}
    mesh = {"mesh_namespace": "istio-system", "mesh_revision": "default", "joined": True}
    ours |= {"included_pods": "app=ui", "membership": "selected", "token": told(ctx, out).token}
    proxy = {"proxy_revision": "default", "proxy_version": "1.31.1"}
    assert told(ctx, out) == service.Options(**ours, **mesh, **proxy)
    written.clear()
    ctx.run(ctx.on.update_status(), given)
    # What each hook found is always new.
    assert written == [both[1].name]


def test_only_a_leader_with_relations_looks_at_the_gateway(world, tmp_path):
    related = {ingress_world.route(), ingress_world.auth()}
    for leader, relations in ((True, related), (False, related), (True, related), (True, set())):
        given = state(workload(files=tmp_path), leader=leader, **ingress_world.NAMED)
        given = dataclasses.replace(given, relations=relations)
        out = world.ctx.run(world.ctx.on.config_changed(), given)
        assert (results(world.ctx, out).expected is not None) is (leader and bool(relations))


@cases(
    ("options", "broken"),
    options=({"revision": "1.31"}, ()),
    ingress=({}, ("list", "envoyfilters")),
)
def test_hook_that_stops_early_lets_the_workload_look_for_the_same(
    world, tmp_path, options, broken
):
    given = state(workload(files=tmp_path), **ingress_world.NAMED)
    given = dataclasses.replace(given, relations={ingress_world.route(), ingress_world.auth()})
    before = results(world.ctx, world.ctx.run(world.ctx.on.config_changed(), given))
    world.fake.broken.update({broken: 500} if broken else {})
    given = dataclasses.replace(given, config={**given.config, **options})
    out = world.ctx.run(world.ctx.on.config_changed(), given)
    after = results(world.ctx, out)
    assert (after.facts.problems != (), after.expected) == (True, before.expected)
    assert after.expected is not None


def test_workload_is_told_of_the_gateway_and_of_the_secrets_that_it_serves(world):
    routed, signed = ingress_world.route(), ingress_world.authority()
    others = map(testing.Relation, ("gateway-info", "ingress-auth", "forward-auth"))
    named = {"namespace": "istio-ingress", "name": "istio-ingressgateway"}
    found, own = {**named, "selector": ingress_world.LABELS}, "istio-integrator.kf.mesh-2"
    given, other = {"tls_secret": "kf"}, service.Gateway(**{**named, "name": "b"})
    for options, related, want in (
        (given, [signed], None),
        *(({}, [each], service.Gateway(**found)) for each in (routed, *others)),
        (given, [routed], service.Gateway(**found, secrets=("kf", own))),
        ({}, [routed, signed], service.Gateway(**found, secrets=(own,))),
        ({**ingress_world.OWN, **given}, [routed], service.Gateway(secrets=("kf", own))),
        ({"gateway_service": "istio-ingress/b"}, [routed], other),
    ):
        world.config, world.related = options, related
        for leader in (True, False):
            found = told(world.ctx, world.hook(leader=leader))
            assert (found.gateway, found.leader) == (want, leader)
    world.fake.forbidden.add(("get", "services"))
    assert told(world.ctx, world.hook()).gateway == want


def test_container_that_is_not_there_yet_is_waited_for(ctx):
    assert status(ctx, state(workload(can_connect=False))) == testing.WaitingStatus(
        "admission: waiting for the lifecycle container; +2 more"
    )


def test_check_that_is_down_is_waited_for(ctx):
    check = testing.CheckInfo("ready", failures=3, status=ops.pebble.CheckStatus.DOWN)
    http = {"url": "http://localhost:8080/readyz"}
    ready = {"override": "replace", "threshold": 3, "http": http}
    layer = ops.pebble.Layer({"checks": {"ready": ready}})
    container = dataclasses.replace(workload(), check_infos={check}, layers={"x": layer})
    assert status(ctx, state(container)) == testing.WaitingStatus(
        "waiting for lifecycle to watch the cluster"
    )
