"""What is left of the charm when its model's namespace is deleted.

The test comes first, while the applications that the main job needs grow a minute old.
"""

import json

import pytest

from testbed.kit import objects, observer

pytestmark = [pytest.mark.usefixtures("prepared"), pytest.mark.timeout(400)]

JUJU_LABELS = ("model.juju.is/name", "model.juju.is/id")


def is_of_juju(item):
    """Whether the object is one that Juju makes for a model."""
    labels = item["metadata"].get("labels", {})
    by_juju = labels.get("app.kubernetes.io/managed-by") == "juju"
    return by_juju or any(label in labels for label in JUJU_LABELS)


@pytest.mark.cluster("tomorrow")
async def test_deleting_the_models_namespace_leaves_nothing_of_ours(node, api):
    before = await objects.snapshot(api)
    # Applications of other tests' models may still be at work.
    models = {
        key.name for key, item in before.items() if key.kind == "Namespace" and is_of_juju(item)
    }
    controller = node.juju("doomed", roles=False)
    await controller.add_model()
    await controller.deploy(node.charms.integrator, "istio-integrator")
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
