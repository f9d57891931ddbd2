"""Charms reach Juju's controller, whatever redirects the traffic of their pods.

The controller is outside of the cluster's registry. Each way of the mesh is seen in both models:
in the bare one charms either need no help, or are cut off and stay so.
"""

import pytest

from testbed import kubernetes
from testbed.kit import observer
from tests.e2e import juju_world, pods
from tests.e2e.juju_world import BARE, MEMBER, WEB, Mesh

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]

MODEL = MEMBER
PORT = "17070"
POD = f"{WEB}-0"
STARTED = 'ran "start" hook'
CUT_OFF = ("not introduced yet", "bounced: ")
"""What charm-init and the agent say each time that they don't reach the controller."""


@pytest.fixture
async def models(cni_node, cni_api):
    """Both models, on a mesh that each test makes as it needs it."""
    await juju_world.set_up(cni_node, cni_api)
    return cni_node


async def log(api, namespace):
    """Read what charm-init and the agent of the charm's pod said."""
    texts = []
    for container in ("charm-init", "charm"):
        try:
            texts.append(await api.log(namespace, POD, container))
        except kubernetes.ApiError:
            # The container has not started yet.
            continue
    return "\n".join(texts)


async def until_started(api, namespace):
    """Wait until the charm's hooks have run, for which the agent must reach the controller."""

    async def started():
        return STARTED in await log(api, namespace)

    await observer.eventually(started, 120, f"{POD} of {namespace} started")


async def until_cut_off(api, namespace):
    """Wait until the charm has found twice that it does not reach its controller."""

    async def complains():
        text = await log(api, namespace)
        return text if sum(text.count(words) for words in CUT_OFF) >= 2 else None

    text = await observer.eventually(complains, 60, f"{POD} of {namespace} cut off")
    assert STARTED not in text


# Ordered so that Istio is installed anew four times only.
@pytest.mark.parametrize(
    ("how", "is_cut_off"),
    [
        pytest.param(Mesh(cni=True, dns=True), True, id="cni-classic-dns"),
        pytest.param(Mesh(cni=True), True, id="cni-classic"),
        pytest.param(Mesh(cni=True, registry_only=True), True, id="cni-classic-only"),
        pytest.param(Mesh(cni=True, native=True, dns=True), False, id="cni-native-dns"),
        pytest.param(Mesh(cni=True, native=True), False, id="cni-native"),
        pytest.param(Mesh(cni=True, native=True, registry_only=True), True, id="cni-native-only"),
        pytest.param(Mesh(native=True, dns=True), False, id="init-native-dns"),
        pytest.param(Mesh(native=True), False, id="init-native"),
        pytest.param(Mesh(native=True, registry_only=True), True, id="init-native-only"),
        pytest.param(Mesh(dns=True), False, id="init-classic-dns"),
        pytest.param(Mesh(), False, id="init-classic"),
        pytest.param(Mesh(registry_only=True), True, id="init-classic-only"),
        pytest.param(Mesh(sidecars=True), True, id="init-classic-sidecar"),
    ],
)
async def test_charm_reaches_its_controller_by_an_exclusion_where_it_needs_one(
    models, cni_api, how, is_cut_off
):
    await juju_world.set_mesh(models.testbed, cni_api, how)
    await juju_world.look_again(models)
    for namespace in (BARE, MEMBER):
        # It need not become Ready: where it is cut off, it does not.
        labels = pods.named(POD)
        await pods.renewed(cni_api, namespace, labels, grace=1, is_back=lambda _: True)

    await until_started(cni_api, MEMBER)
    await (until_cut_off if is_cut_off else until_started)(cni_api, BARE)
    for namespace in (BARE, MEMBER):
        annotations = (await cni_api.get("Pod", POD, namespace))["metadata"]["annotations"]
        assert "sidecar.istio.io/status" in annotations
        excluded = annotations.get(juju_world.PORTS, "").split(",")
        assert (PORT in excluded) is (is_cut_off and namespace == MEMBER)
        assert "53" not in excluded
