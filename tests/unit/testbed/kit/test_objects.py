import copy

import pytest

from testbed.kit import objects


def item(kind="ConfigMap", **fields):
    metadata = {"name": "one", "namespace": "ns", "uid": "1", "creationTimestamp": "then"}
    return {"kind": kind, "metadata": {**metadata, "resourceVersion": "1"}, **fields}


KEY = objects.Key("", "ConfigMap", "ns", "one")


def snapshot(*items):
    return {
        objects.Key("", it["kind"], "ns", it["metadata"]["name"]): objects.normalised(it)
        for it in items
    }


def test_what_the_apiserver_writes_is_no_difference():
    before, after = item(data={"a": "1"}), item(data={"a": "1"}, status={"x": 1})
    after["metadata"] |= {"uid": "2", "resourceVersion": "9", "generation": 3, "managedFields": []}
    assert objects.compare(snapshot(before), snapshot(after)) == []


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        pytest.param([item()], [], "removed ConfigMap ns/one", id="removed"),
        pytest.param([], [item()], "added ConfigMap ns/one", id="added"),
        pytest.param(
            [item(data={"a": "1"})],
            [item(data={"a": "2"})],
            'changed ConfigMap ns/one .data.a: "1" -> "2"',
            id="changed",
        ),
        pytest.param(
            [item(list=[1])],
            [item(list=[1, 2])],
            "changed ConfigMap ns/one .list: [1] -> [1, 2]",
            id="longer-list",
        ),
        pytest.param(
            [item(list=[{"a": 1}])],
            [item(list=[{"a": 2}])],
            "changed ConfigMap ns/one .list[0].a: 1 -> 2",
            id="inside-list",
        ),
    ],
)
def test_a_difference_names_the_object_and_the_field(before, after, text):
    assert [str(d) for d in objects.compare(snapshot(*before), snapshot(*after))] == [text]


def test_only_recreated_objects_may_have_a_new_creation_time():
    before, after = item(), item()
    after["metadata"]["creationTimestamp"] = "now"
    assert len(objects.compare(snapshot(before), snapshot(after))) == 1
    assert objects.compare(snapshot(before), snapshot(after), recreated=[KEY]) == []


def test_endpoints_are_compared_without_their_addresses():
    before = item("Endpoints", subsets=[{"addresses": []}])
    trigger = {"endpoints.kubernetes.io/last-change-trigger-time": "now"}
    after = item("Endpoints")
    after["metadata"]["annotations"] = trigger
    assert objects.compare(snapshot(before), snapshot(after)) == []


def test_the_holder_of_a_configmap_lock_is_no_difference():
    before, after = item(), item()
    for it, holder in ((before, "a"), (after, "b")):
        it["metadata"]["annotations"] = {"control-plane.alpha.kubernetes.io/leader": holder}
    assert objects.compare(snapshot(before), snapshot(after)) == []


def test_normalising_leaves_its_argument_alone():
    original = item(status={})
    expected = copy.deepcopy(original)
    objects.normalised(original)
    assert original == expected


@pytest.mark.parametrize(("app", "count"), [("istiod", 0), ("other", 1)])
def test_istiod_says_by_itself_when_its_own_validation_must_be_asked(app, count):
    before = item("ValidatingWebhookConfiguration", webhooks=[{"failurePolicy": "Ignore"}])
    before["metadata"]["labels"] = {"app": app}
    after = copy.deepcopy(before)
    after["webhooks"][0]["failurePolicy"] = "Fail"
    assert len(objects.compare(snapshot(before), snapshot(after))) == count
