"""Restrictions in the charm's objects, and Secrets that the charm does not read."""

import contextlib
import re

import pytest
from ops import testing

from tests.unit.charm import ingress_world
from tests.unit.charm.ingress_world import OURS, World, auth, install_gateway, route, secret


@pytest.fixture(autouse=True)
def connected(fake, monkeypatch):
    ingress_world.connect_without_gateway(fake, monkeypatch)


@pytest.fixture
def exposed(fake):
    """A model that is served by a gateway elsewhere, by HTTPS."""
    install_gateway(fake)
    secret(fake, "kubeflow-tls", "istio-ingress")
    world = World(fake, route(), auth(), tls_secret="kubeflow-tls")
    world.run()
    return world


def test_old_versions_of_tls_are_refused_and_the_guard_stands_before_filters_of_others(exposed):
    (gateway,) = exposed.all("Gateway")
    (secure,) = [each for each in gateway["spec"]["servers"] if "mode" in each.get("tls", {})]
    assert secure["tls"]["minProtocolVersion"] in ("TLSV1_2", "TLSV1_3")
    (guard,) = exposed.all("EnvoyFilter")
    # Without a priority a filter has 0; the later one inserts in front of the earlier.
    assert guard["spec"]["priority"] > 0


SECRETS = re.compile(r"/api/v1/namespaces/([^/]+)/secrets/([^/]+)")


def test_no_secret_is_read_but_our_own_and_the_one_that_the_operator_names(fake, monkeypatch):
    for namespace in ("istio-ingress", "kf", "istio-system"):
        secret(fake, "theirs", namespace)
    install_gateway(fake)
    secret(fake, "kubeflow-tls", "istio-ingress")
    read, lists = set(), []

    def note(request):
        if request.method == "GET" and "/secrets" in request.path:
            one = SECRETS.fullmatch(request.path)
            if one:
                read.add(one.groups())
            else:
                lists.append(request.query.get("labelSelector", ""))

    monkeypatch.setattr(fake, "check", note)
    related = (route(), auth())
    world = World(fake, *related, tls_secret="kubeflow-tls")
    world.run(lambda ctx: ctx.on.upgrade_charm())
    world.get_ready("mesh-2-admission")
    with contextlib.suppress(testing.ActionFailed):
        world.run(lambda ctx: ctx.on.action("diagnose"))
    world.remove()

    foreign = {each for each in read if OURS not in each[1]}
    assert foreign == {("istio-ingress", "kubeflow-tls")}
    assert foreign < read
    assert lists == []
