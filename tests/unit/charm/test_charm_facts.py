"""A hook's findings are written for the workload, which exposes them as metrics."""

import dataclasses
import json
import time

import pytest
from ops import testing

from integrator_contract import charm_facts
from istio_integrator.admission import certificates
from tests import tls_pairs
from tests.unit.cases import cases
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import results, state, workload
from tests.unit.charm.ingress_world import auth, route, sdi

pytestmark = pytest.mark.usefixtures("installed")


def facts(ctx, out: testing.State) -> charm_facts.CharmFacts:
    """Read what the workload is told."""
    return results(ctx, out).facts


def of_world(world, event=None, **how) -> charm_facts.CharmFacts:
    return facts(world.ctx, world.run(event, **how))


def said(found: charm_facts.CharmFacts) -> set[tuple[str, str]]:
    return {(each.part, each.severity) for each in found.problems}


def of_owner(found: charm_facts.CharmFacts, owner: str) -> list[charm_facts.Certificate]:
    return [each for each in found.certificates if each.owner == owner]


def test_model_that_is_as_it_should_be_has_no_problems(ctx):
    before = time.time()
    found = facts(ctx, ctx.run(ctx.on.update_status(), state()))
    assert before <= found.looked <= time.time()
    want = charm_facts.CharmFacts(
        looked=found.looked, old_proxies=0, certificates=found.certificates
    )
    assert found == want
    (told,) = found.certificates
    assert told.owner == "webhook"
    assert told.not_after - told.not_before > certificates.LIFE.total_seconds()


@cases(
    ("given", "want"),
    option=({"pod_labels": "x"}, {("config", "blocked")}),
    mesh=({"revision": "gone"}, {("mesh", "blocked")}),
)
def test_problem_is_told_with_the_part_that_has_it(ctx, given, want, tmp_path):
    container = workload(files=tmp_path)
    ctx.run(ctx.on.start(), state(container))
    before = time.time()
    found = facts(ctx, ctx.run(ctx.on.config_changed(), state(container, **given)))
    assert said(found) == want
    assert before <= found.looked <= time.time()


def test_right_that_several_parts_need_is_a_problem_of_each(ctx, fake):
    fake.forbidden.add(("list", "pods"))
    found = facts(ctx, ctx.run(ctx.on.update_status(), state()))
    assert said(found) == {("admission", "blocked"), ("membership", "blocked")}


def test_problem_ends_with_the_hook_that_finds_it_gone(ctx, fake):
    fake_cluster.uninstall_istio(fake)
    out = ctx.run(ctx.on.start(), state())
    assert ("mesh", "waiting") in said(facts(ctx, out))
    fake_cluster.install_istio(fake)
    out = ctx.run(ctx.on.update_status(), state())
    assert said(facts(ctx, out)) == set()


def test_pods_with_an_old_proxy_are_counted_and_the_workloads_summary_is_named(ctx):
    given = state(workload(stale=3, word="0123456789abcdef"))
    found = facts(ctx, ctx.run(ctx.on.update_status(), given))
    assert (found.old_proxies, found.progress) == (3, "0123456789abcdef")


def test_workload_that_does_not_answer_leaves_their_number_open(ctx):
    found = facts(ctx, ctx.run(ctx.on.update_status(), state(workload(code=502))))
    assert found.old_proxies is None
    assert ("lifecycle", "waiting") in said(found)


def test_routes_that_nobody_guards_are_told_as_closed_until_somebody_does(world):
    world.related = [route()]
    found = of_world(world)
    assert (found.guard, ("ingress", "blocked") in said(found)) == ("closed", True)
    world.related = [route(), sdi("ingress-auth", "oidc-gatekeeper")]
    found = of_world(world)
    assert (found.guard, ("ingress", "waiting") in said(found)) == ("closed", True)
    world.config = {"require_authentication": False}
    world.related = [route()]
    assert of_world(world).guard == "none"


def test_leader_tells_of_the_guard_and_whether_the_gateway_is_ready(world):
    world.related = [route(), auth()]
    found = of_world(world)
    assert (found.gateway_ready, found.guard) == (True, "asks")
    found = of_world(world, leader=False)
    assert (found.gateway_ready, found.guard) == (None, None)
    gateway = world.fake.find("Deployment", "istio-ingressgateway", "istio-ingress")
    gateway["status"]["readyReplicas"] = 0
    world.fake.delete("Pod", "gateway-0", "istio-ingress")
    found = of_world(world)
    assert (found.gateway_ready, found.guard) == (False, "asks")


def test_end_of_the_operator_s_certificate_is_told(world):
    world.config = {"tls_secret": "kf", "hosts": "kf.example.com"}
    world.related = [route(), auth()]
    world.fake.put("Secret", "kf", "istio-ingress", data=tls_pairs.pair(days=(-9, 9)))
    told = of_owner(of_world(world), "gateway")[0]
    assert told.not_after - told.not_before == 18 * 86400
    # The copy is served while the Secret is useless.
    world.fake.find("Secret", "kf", "istio-ingress")["data"]["tls.crt"] = "bm9uZQ=="
    assert of_owner(of_world(world), "gateway") == [told]


def test_file_says_no_names_and_no_messages(world):
    world.related = [route(), auth()]
    text = json.dumps(dataclasses.asdict(of_world(world)))
    assert "kfp-ui" not in text
    assert "istio-ingress" not in text
