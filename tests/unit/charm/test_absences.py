"""What hooks remember not to be there saves looks, and nothing else: whatever it says."""

import json
import time

import pytest
from ops import testing

import charm
from integrator_contract import names
from istio_integrator.kube import absences, cluster
from tests.unit.charm import charm_world, fake_cluster
from tests.unit.charm.charm_world import state

OWNER = "kubeflow.istio-integrator"
EVERYTHING = sorted(
    f"{kind.api_version}/{kind.plural}{more}"
    for kind in cluster.KINDS.values()
    for more in ("", "/istio-integrator-gateway-key", "/istio-integrator-lifecycle/untied")
)


@pytest.fixture
def folder(tmp_path):
    return charm_world.root(tmp_path)


@pytest.fixture
def ctx(fake, monkeypatch, folder) -> testing.Context[charm.IstioIntegrator]:
    charm_world.connect(fake, monkeypatch)
    fake.application()
    fake_cluster.install_istio(fake)
    return testing.Context(charm.IstioIntegrator, charm_root=folder)


@pytest.fixture
def settled(ctx) -> testing.State:
    """A unit that has seen everything."""
    return ctx.run(ctx.on.config_changed(), ctx.run(ctx.on.start(), state()))


def leave(fake, kind="VirtualService", owner=OWNER):
    """Have something of ours be there that nobody asked for."""
    metadata = {"name": "left", "namespace": "kubeflow", "labels": {names.OWNER: owner}}
    metadata["labels"][names.COMPONENT] = "routes"
    fake.add({"apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": metadata})


def left(fake):
    return fake.find("VirtualService", "left", "kubeflow")


def write(folder, **more):
    said = {"since": time.time(), "absent": EVERYTHING, **more}
    (folder / ".absences").write_text(json.dumps(said))


def test_usual_hook_does_not_look_for_what_was_not_there(ctx, fake, settled):
    fake.requests.clear()
    ctx.run(ctx.on.update_status(), settled)
    assert "list virtualservices kubeflow" not in fake.requests


@pytest.mark.parametrize("event", ["start", "upgrade_charm", "leader_elected"])
def test_new_beginning_looks_for_everything(ctx, fake, settled, event):
    leave(fake)
    ctx.run(ctx.on.update_status(), settled)
    assert left(fake)
    ctx.run(getattr(ctx.on, event)(), settled)
    assert not left(fake)


def test_action_looks_for_everything(ctx, fake, settled):
    leave(fake)
    ctx.run(ctx.on.action("show-manifests"), settled)
    assert not left(fake)


def test_everything_is_looked_for_once_an_hour(ctx, fake, settled, folder):
    leave(fake)
    write(folder, since=time.time() - absences.SECONDS)
    ctx.run(ctx.on.update_status(), settled)
    assert not left(fake)


def test_unit_that_does_not_lead_remembers_nothing(ctx, fake, settled, folder):
    follower = state(leader=False)
    ctx.run(ctx.on.update_status(), follower)
    assert not (folder / ".absences").exists()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda folder: (folder / ".absences").unlink(), id="missing"),
        pytest.param(lambda folder: (folder / ".absences").write_bytes(b"\0"), id="unreadable"),
        pytest.param(write, id="says that there is nothing"),
    ],
)
def test_removal_takes_everything_whatever_is_remembered(ctx, fake, settled, folder, spoil):
    leave(fake)
    assert fake.find("MutatingWebhookConfiguration", f"0-istio-integrator.{OWNER}")
    spoil(folder)
    ctx.run(ctx.on.remove(), state(leader=False, units=0))
    assert not left(fake)
    assert not [each for each in fake.objects.values() if is_of_the_charm(each)]
    assert "istio-injection" not in fake.labels("kubeflow")


def is_of_the_charm(obj):
    return obj["metadata"].get("labels", {}).get(names.OWNER) == OWNER


def test_lie_has_nothing_be_deleted_and_nothing_be_made_twice(ctx, fake, settled, folder):
    leave(fake, owner="other.app")
    before = {key: obj["metadata"]["resourceVersion"] for key, obj in fake.objects.items()}
    write(folder)
    ctx.run(ctx.on.update_status(), settled)
    after = {key: obj["metadata"]["resourceVersion"] for key, obj in fake.objects.items()}
    assert after == before


def test_kind_is_looked_for_again_before_the_first_of_it_is_made(ctx, fake, settled, folder):
    """So whatever becomes of the write, nothing is left behind that nobody knows of."""
    strict = state(mtls="strict")
    remembered = []
    fake.broken["patch", "peerauthentications"] = 500
    answer = fake._check

    def check(verb, key):
        if (verb, key[1]) == ("patch", "peerauthentications"):
            remembered.extend(json.loads((folder / ".absences").read_text())["absent"])
        answer(verb, key)

    fake._check = check
    assert "security.istio.io/v1/peerauthentications" in (folder / ".absences").read_text()
    ctx.run(ctx.on.config_changed(), strict)
    assert remembered
    assert "security.istio.io/v1/peerauthentications" not in remembered
