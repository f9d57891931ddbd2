"""What `diagnose` says of what others wrote, and of calls out."""

import dataclasses

import pytest

from tests.functional.diagnosis.world import INJECTED


def test_policy_of_another_team_that_denies_every_call(world):
    world.pod("web", "main", "istio-proxy", labels={"app": "web"}, annotations=INJECTED)
    world.create("AuthorizationPolicy", "nobody", world.root, spec={})
    (found,) = world.says("others")
    assert found.level.value == "!"
    assert f"{world.root}/nobody denies every caller of 1 pods" in found.seen


STRICT = ("PeerAuthentication", {"mtls": {"mode": "STRICT"}})

PERMITTED = ("PeerAuthentication", {"portLevelMtls": {"8443": {"mode": "PERMISSIVE"}}})

CLOSED = ("AuthorizationPolicy", {})

OPEN = ("AuthorizationPolicy", {"rules": [{"to": [{"operation": {"ports": ["8443"]}}]}]})


@pytest.mark.parametrize(
    ("closing", "opening"),
    [
        pytest.param(STRICT, PERMITTED, id="strict-mesh"),
        pytest.param(CLOSED, OPEN, id="closed-mesh"),
    ],
)
def test_webhook_that_the_mesh_cuts_off(world, closing, opening):
    labels = {"app": "katib"}
    world.pod("katib-1", "main", "istio-proxy", labels=labels, annotations=INJECTED)
    world.create(
        "Service", "katib", spec={"selector": labels, "ports": [{"port": 443, "targetPort": 8443}]}
    )
    world.create(
        "ValidatingWebhookConfiguration",
        f"{world.model}.katib",
        webhooks=[
            {
                "name": "validator.katib.kubeflow.org",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "namespaceSelector": {"matchLabels": {"no": "body"}},
                "clientConfig": {"service": {"name": "katib", "namespace": world.model}},
            }
        ],
    )
    kind, spec = closing
    world.create(kind, "default", world.root, spec=spec)
    found = world.says("webhooks")[0]
    assert found.level.value == "✗"
    assert f"webhook {world.model}.katib can't be called" in found.seen
    assert "excluded-pods=app=katib" in found.next
    kind, spec = opening
    world.create(kind, "katib", spec={"selector": {"matchLabels": labels}, **spec})
    assert world.worst("webhooks")[0] == "✓"
    name = f"{world.model}.katib"
    world.kubectl("delete", "validatingwebhookconfiguration", name)


def test_calls_out_that_proxies_would_break(world):
    world.create("Sidecar", "default", world.root, spec={"egress": [{"hosts": ["./*"]}]})
    found = world.says("egress")
    assert [each.level.value for each in found] == ["!"]
    world.mesh = dataclasses.replace(world.mesh, registry_only=True)
    labels = {"app.kubernetes.io/name": "minio"}
    world.pod("minio-0", "charm", "istio-proxy", labels=labels, annotations=INJECTED)
    found = world.says("egress")
    assert found[0].level.value == "✗"
    assert f"Pod {world.model}/minio-0 keep their charms" in found[0].seen
    assert any("REGISTRY_ONLY" in each.seen for each in found)
