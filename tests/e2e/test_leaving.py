"""The charm without rights, and what is left of it however it goes.

These tests have models of their own. They come first, while the applications that the main job
needs grow a minute old; each runs on one of the two clusters.
"""

import json

import pytest

from testbed.kit import objects, observer

pytestmark = [pytest.mark.usefixtures("prepared"), pytest.mark.timeout(400)]

OURS = "istio-integrator"
JUJU_LABELS = ("model.juju.is/name", "model.juju.is/id")


def is_of_juju(item):
    """Whether the object is one that Juju makes for a model."""
    labels = item["metadata"].get("labels", {})
    by_juju = labels.get("app.kubernetes.io/managed-by") == "juju"
    return by_juju or any(label in labels for label in JUJU_LABELS)


async def deploy(node, model, *, trust=True):
    """Add a model and deploy the charm into it."""
    controller = node.juju(model, roles=False)
    await controller.add_model()
    await controller.deploy(node.charms.integrator, OURS, trust=trust)
    return controller


@pytest.mark.cluster("today")
async def test_without_trust_the_charm_says_what_to_run_and_then_works(node, api):
    controller = await deploy(node, "untrusted", trust=False)
    status = await controller.wait_for("blocked", 120)
    assert "juju trust istio-integrator --scope=cluster" in status.message
    labels = (await api.get("Namespace", "untrusted"))["metadata"].get("labels", {})
    assert "istio-injection" not in labels
    await controller.do("trust", OURS)
    await controller.wait_for("active", 120)
    labels = (await api.get("Namespace", "untrusted"))["metadata"].get("labels", {})
    assert labels["istio-injection"] == "enabled"
    await controller.remove(OURS)

    async def is_restored():
        labels = (await api.get("Namespace", "untrusted"))["metadata"].get("labels", {})
        return "istio-injection" not in labels

    await observer.eventually(is_restored, 30, "the namespace's label restored")


@pytest.mark.cluster("tomorrow")
async def test_deleting_the_models_namespace_leaves_nothing_of_ours(node, api):
    before = await objects.snapshot(api)
    # Applications of other tests' models may still be at work.
    models = {
        key.name for key, item in before.items() if key.kind == "Namespace" and is_of_juju(item)
    }
    controller = await deploy(node, "doomed")
    await controller.wait_for("active", 120)
    created = [
        str(difference.key)
        for difference in objects.compare(before, await objects.snapshot(api))
        if difference.key.namespace != "doomed"
    ]
    assert any("mutatingwebhookconfiguration" in key.lower() for key in created), created
    await api.delete("Namespace", "doomed")
    left = []

    async def is_clean():
        nonlocal left
        after = await objects.snapshot(api)
        left = [
            difference
            for difference in objects.compare(before, after)
            if difference.key.namespace not in models
            and (
                difference.change != "added"
                or not is_of_juju(after[difference.key])
                # Juju's webhook labels what the application's account makes.
                or mentions(after[difference.key])
            )
        ]
        return not left

    try:
        await observer.eventually(is_clean, 90, "nothing left", every=2)
    except observer.NotObserved:
        pytest.fail(f"left: {[str(difference) for difference in left]}")
    after = await objects.snapshot(api)
    added = {
        str(key): item
        for key, item in after.items()
        if key not in before and key.namespace not in models
    }
    assert [key for key, item in added.items() if mentions(item)] == []


def mentions(item):
    """Whether an object carries a label, annotation or owner of ours."""
    text = json.dumps(item["metadata"])
    return "istio-integrator.charmhub.io/" in text or '"managed-by": "istio-integrator"' in text
