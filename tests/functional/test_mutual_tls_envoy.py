"""Who is answered by a sidecar that a real istiod configures from what we write: over the wire."""

import pytest

from tests import waiting
from tests.functional import sidecar_world
from tests.functional.mutual_tls_world import part, policies, said
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
    strict = part(api, MODEL)
    strict.reconcile()
    assert said(strict) == ["active: strict mutual TLS"]
    assert answers(world, open_to_plain_text=False) == CERTIFIED
    part(api, MODEL, mtls_exceptions=f"minio:{port}").reconcile()
    assert answers(world, open_to_plain_text=True) == BOTH
    part(api, MODEL, mtls_exceptions="minio:1").reconcile()
    assert answers(world, open_to_plain_text=False) == CERTIFIED
    part(api, MODEL, mtls="inherit").reconcile()
    assert policies(api, MODEL) == {}
    assert answers(world, open_to_plain_text=True) == BOTH


def test_istiod_goes_by_the_oldest_policy_for_a_pod_as_we_say_of_others(world):
    api, port = world.api, world.port
    part(api, MODEL).remove()
    theirs = api.create(
        members.peers("theirs", namespace=MODEL, selector=LABELS, ports={1: "PERMISSIVE"})
    )
    made = part(api, MODEL, mtls_exceptions=f"minio:{port}")
    made.reconcile()
    assert (
        f"theirs, which this charm did not make, is older and decides about minio:{port}"
        in said(made)[0]
    )
    assert list(policies(api, MODEL)) == ["theirs"]
    # What would be, had we written ours all the same, at least a second later.
    younger = {"namespace": MODEL, "selector": LABELS, "ports": {port: "PERMISSIVE"}}

    def is_younger():
        written = api.create(members.peers("younger", **younger))
        is_so = written["metadata"]["creationTimestamp"] > theirs["metadata"]["creationTimestamp"]
        if not is_so:
            api.delete(written)
        return is_so

    assert waiting.eventually(is_younger)
    everybody = api.create(members.peers("all", namespace=MODEL, mode="STRICT"))
    assert answers(world, open_to_plain_text=False) == CERTIFIED
    api.delete(theirs)
    assert answers(world, open_to_plain_text=True) == BOTH
    api.delete(members.peers("younger", **younger))
    api.delete(everybody)
