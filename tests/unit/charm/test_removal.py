"""In which order everything goes: what opens a door before what guards it."""

import ops
import pytest

from istio_integrator.ingress import ingress
from tests import asked
from tests.unit.charm import ingress_world
from tests.unit.charm.ingress_world import (
    OURS,
    OWN,
    OWNER,
    World,
    auth,
    authority,
    route,
    secret,
    sign,
)

INJECTION = "istio-injection"


@pytest.fixture(autouse=True)
def connected(fake, monkeypatch):
    ingress_world.connect(fake, monkeypatch)


def kept_by_the_workload(fake):
    """What the workload writes while it runs."""
    metadata = {"name": f"{OURS}-convergence", "namespace": "kubeflow"}
    fake.add({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


def made_by_an_older_revision(fake):
    """An object of ours that nothing of this revision makes."""
    labels = {
        OWNER: "kubeflow.istio-integrator",
        "istio-integrator.charmhub.io/component": "of-an-older-revision",
        "app.kubernetes.io/managed-by": OURS,
    }
    metadata = {"name": "of-an-older-revision", "namespace": "kubeflow", "labels": labels}
    fake.add({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


def parts_in_order(writes, parts):
    """Say in which order the parts were first touched."""
    found = {
        part: n
        for n, write in reversed([*enumerate(writes)])
        for part in parts
        if write.startswith(part)
    }
    return sorted(found, key=lambda part: found[part])


def test_removal_takes_the_routes_first_and_the_workload_last(fake, monkeypatch):
    world = World(fake, route(), auth())
    world.run()
    kept_by_the_workload(fake)
    made_by_an_older_revision(fake)
    assert fake.labels("kubeflow")[INJECTION] == "enabled"
    fake.writes.clear()
    replan = ops.Container.replan
    monkeypatch.setattr(
        ops.Container, "replan", lambda self: fake.writes.append("change layer") or replan(self)
    )

    world.remove()

    order = [
        # Without convergence, so that nothing is evicted while all of it goes.
        "change layer",
        "delete virtualservices",
        "delete gateways",
        "delete envoyfilters",
        "patch namespaces",
        "delete mutatingwebhookconfigurations",
        "delete deployments",
        "delete secrets istio-integrator-admission-tls",
        "delete configmaps of-an-older-revision",
        "delete configmaps istio-integrator-convergence",
    ]
    assert parts_in_order(fake.writes, order) == order
    assert INJECTION not in fake.labels("kubeflow")


SECRET = "istio-integrator.kubeflow.istio-integrator"


@pytest.mark.parametrize(
    ("labels", "stays"),
    [
        pytest.param({OWNER: "kubeflow.istio-integrator"}, False, id="ours"),
        pytest.param({OWNER: "other.istio-integrator"}, True, id="another's"),
        pytest.param({}, True, id="nobody says"),
    ],
)
def test_only_a_certificate_of_ours_goes_when_the_gateway_moves(fake, labels, stays):
    related = route(), auth(), authority()
    world = World(fake, *related, hosts="kf.example.com")
    world.run()
    sign(world)
    world.run()
    fake.delete("Secret", SECRET, "istio-ingress")
    found = secret(fake, SECRET, "istio-ingress", **labels)
    (guard,) = world.all("EnvoyFilter")
    found["metadata"]["ownerReferences"] = guard["metadata"]["ownerReferences"]

    world.config |= OWN
    world.run()

    assert [gateway["spec"]["selector"] for gateway in world.all("Gateway")] != [
        {"istio": "ingressgateway"}
    ]
    assert (fake.find("Secret", SECRET, "istio-ingress") is not None) is stays


@pytest.fixture
def waits(fake, monkeypatch):
    """Write down between the writes how long the ingress waits; the gateway has no server then."""

    def wait(seconds):
        fake.writes.append(f"wait {seconds}")
        asked.SERVICE.closes()

    monkeypatch.setattr(ingress, "sleep", wait)


@pytest.mark.usefixtures("waits")
def test_gateway_has_time_to_forget_the_routes_before_the_guard_goes(fake):
    world = World(fake, route(), auth())
    world.run()
    fake.writes.clear()

    world.remove()

    order = ["delete virtualservices", "delete gateways", "wait 1", "delete envoyfilters"]
    assert parts_in_order(fake.writes, order) == order


@pytest.mark.usefixtures("waits")
def test_gateway_has_time_to_forget_the_routes_before_they_move(fake):
    world = World(fake, route(), auth(), hosts="kf.example.com")
    world.run()
    fake.writes.clear()

    world.config |= OWN
    world.run()

    order = ["delete virtualservices", "wait 1", "patch envoyfilters", "patch virtualservices"]
    assert parts_in_order(fake.writes, order) == order
