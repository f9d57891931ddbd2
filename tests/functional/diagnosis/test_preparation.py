"""What `diagnose` says of what prepares new pods."""

import datetime

from istio_integrator.admission import admission, certificates, webhook
from tests.functional.diagnosis.world import APP

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_webhook_whose_servers_are_not_there(world):
    part = admission.Admission(world.facts().context, lambda: "none:1")
    part.reconcile()
    level, seen = world.worst("admission")
    assert (level, seen.startswith("new pods are not prepared: ")) == ("✗", True)
    part.remove()


def test_certificate_that_ended_and_one_that_nobody_trusts(world):
    name = f"{APP}-admission"
    old = certificates.decide(None, [name], NOW - datetime.timedelta(days=400))
    world.create("Secret", f"{name}-tls", data=old.data())
    world.now = NOW
    found = world.says("certificates")
    assert [each.level.value for each in found] == ["✗", "✓"]
    assert "webhook: the certificate ended" in found[0].seen
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": webhook.configuration_name(f"{world.model}.{APP}")},
        "webhooks": [
            {
                "name": "a.b.c",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "namespaceSelector": {"matchLabels": {"no": "body"}},
                "clientConfig": {
                    "service": {"name": "x", "namespace": world.model},
                    "caBundle": certificates.encoded(certificates.decide(None, [name], NOW).ca),
                },
            }
        ],
    }
    world.api.create(configuration)
    try:
        (found,) = [each for each in world.says("certificates") if "trusts" in each.seen]
        assert found.next == f"juju run {APP}/leader rotate-certificates"
        assert "trusts another authority" in found.seen
    finally:
        world.api.delete(configuration)
