"""Who is answered by a sidecar that a real istiod configures from what we write: over the wire."""

import pytest

from istio_integrator.kube import cluster
from tests.functional import charm_parts, sidecar_world
from tests.unit.charm.security import members

MODEL = "certified"
LABELS = {"app.kubernetes.io/name": "minio"}
MEMBER = (MODEL, "mlmd")
BOTH, CERTIFIED = (200, 200), (0, 200)
"""What a caller in plain text and one with a certificate are answered; 0 is no answer."""


@pytest.fixture(scope="module")
def world(client, kubeconfig, tmp_path_factory):
    """istiod and an API server with a member of the mesh."""
    folder = tmp_path_factory.mktemp("sidecar")
    with sidecar_world.member(
        client, kubeconfig, folder, MODEL, name="minio", labels=LABELS
    ) as found:
        api, port = found.api, found.port
        workload = members.stateful_set("minio")
        workload["metadata"]["namespace"] = MODEL
        workload["spec"] |= {"replicas": 0, "serviceName": "minio"}
        workload["spec"]["template"]["spec"] = {"containers": [{"name": "x", "image": "none"}]}
        api.create(workload)
        service = members.service("minio", port)
        service["metadata"]["namespace"] = MODEL
        api.create(service)
        yield found


def answers(world, *, open_to_plain_text):
    """Ask the sidecar, once istiod knows what it is to do."""
    with world.sidecar(
        wanted=lambda text: "listener" in text and ("raw_buffer" in text) == open_to_plain_text
    ) as ask:
        return ask(), ask(MEMBER)


def test_strict_is_for_certificates_alone_and_an_exception_for_everybody(world):
    api, port = world.api, world.port
    assert answers(world, open_to_plain_text=True) == BOTH
    assert charm_parts.said(charm_parts.strict(api, MODEL)) == ["active: strict mutual TLS"]
    assert answers(world, open_to_plain_text=False) == CERTIFIED
    charm_parts.strict(api, MODEL, mtls_exceptions=f"minio:{port}").reconcile()
    assert answers(world, open_to_plain_text=True) == BOTH
    charm_parts.strict(api, MODEL, mtls_exceptions="minio:1").reconcile()
    assert answers(world, open_to_plain_text=False) == CERTIFIED
    charm_parts.strict(api, MODEL, mtls="inherit").reconcile()
    assert charm_parts.listed(api, cluster.PEER_AUTHENTICATION, MODEL) == {}
    assert answers(world, open_to_plain_text=True) == BOTH
