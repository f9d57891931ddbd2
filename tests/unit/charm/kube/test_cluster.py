"""Objects that lack what all have, and definitions of resources, which are large."""

import json
import tracemalloc

import pytest

from istio_integrator.kube import cluster, fences
from istio_integrator.situation import model
from tests.unit.charm.security import members

NAMED = {"name": "a", "namespace": "b"}


@pytest.mark.parametrize(
    ("obj", "lacks"),
    [
        ({"metadata": NAMED}, ""),
        ({}, "it has no name"),
        ({"metadata": []}, "it has no name"),
        ({"metadata": {"name": 1}}, "it has no name"),
        ({"metadata": NAMED, "spec": json.loads("[" * 200 + "]" * 200)}, cluster.TOO_DEEP),
    ],
)
def test_answer_that_is_no_object_is_told(obj, lacks):
    assert cluster.lack({"apiVersion": "v1", "kind": "Pod", **obj}) == lacks


SCHEMA = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(200)}}


def large(name):
    """A definition with a schema, as controllers of Kubeflow have them."""
    definition = members.definition(name, "converter")
    definition["spec"]["versions"] = [{"name": "v1", "schema": {"openAPIV3Schema": SCHEMA}}]
    definition["metadata"]["labels"] = {"a": "b"}
    return definition


def test_of_definitions_name_labels_and_conversion_are_read_and_no_schema(fake):
    fences.forget()
    wanted = fake.add(large("a.b"))
    listed = fake.api().list
    (found,) = listed(cluster.CUSTOM_RESOURCE_DEFINITION, labels={"a": "b"})
    assert not listed(cluster.CUSTOM_RESOURCE_DEFINITION, labels={"a": "c"})
    assert found["metadata"] == wanted["metadata"]
    assert found["spec"] == {"conversion": wanted["spec"]["conversion"]}
    assert [call.service for call in model.calls([found], model="kubeflow")] == ["converter"]


def test_schemas_of_a_large_cluster_take_no_memory():
    one = json.dumps(large("a.b"))
    text = b'{"items":[%s]}' % ",".join([one] * 300).encode()
    tracemalloc.start()
    try:
        _, found = cluster._read_page(cluster.CUSTOM_RESOURCE_DEFINITION, text)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == 300
    assert most < len(text) / 2
