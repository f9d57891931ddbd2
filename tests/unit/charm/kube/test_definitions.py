"""CustomResourceDefinitions as they are listed: without the schemas, which nobody here reads."""

import json
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.kube import cluster, fences
from istio_integrator.situation import model
from tests.unit.charm.security import members

SCHEMA = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(200)}}


def large(name, service="converter"):
    """One with a schema, as controllers of Kubeflow have them."""
    definition = members.definition(name, service)
    definition["spec"]["versions"] = [{"name": "v1", "schema": {"openAPIV3Schema": SCHEMA}}]
    definition["metadata"]["labels"] = {"a": "b"}
    return definition


def test_name_labels_and_conversion_are_read_and_no_schema(fake):
    wanted = fake.add(large("a.b"))
    (found,) = fake.api().list(cluster.CUSTOM_RESOURCE_DEFINITION)
    assert found["metadata"] == wanted["metadata"]
    assert found["spec"] == {"conversion": wanted["spec"]["conversion"]}
    assert found["kind"] == "CustomResourceDefinition"
    assert [call.service for call in model.calls([found], model="kubeflow")] == ["converter"]


def test_labels_choose_among_them(fake):
    fake.add(large("a.b"))
    listed = fake.api().list
    assert listed(cluster.CUSTOM_RESOURCE_DEFINITION, labels={"a": "b"})
    assert not listed(cluster.CUSTOM_RESOURCE_DEFINITION, labels={"a": "c"})


def test_one_that_is_none_costs_itself(fake):
    for name, spec in (("odd.b", 7), ("odd.c", {"conversion": "x"}), ("a.b", {})):
        fake.add({**large(name), "spec": spec})
    found = fake.api().list(cluster.CUSTOM_RESOURCE_DEFINITION)
    assert [each["metadata"]["name"] for each in found] == ["a.b"]
    assert set(fences.noted()) >= {
        "CustomResourceDefinition odd.b",
        "CustomResourceDefinition odd.c",
    }


def test_kind_that_is_not_there_is_none(fake):
    fake.absent.add("apiextensions.k8s.io/v1")
    assert fake.api().list(cluster.CUSTOM_RESOURCE_DEFINITION) == []


VALUES = st.recursive(
    st.none() | st.text() | st.integers(-5, 5),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["conversion", "versions"]), VALUES) | VALUES)
def test_whatever_a_definition_holds_is_read_or_passed_over(spec):
    text = json.dumps({"items": [{"metadata": {"name": "a.b"}, "spec": spec}]}).encode()
    _, read = cluster._read_page(cluster.CUSTOM_RESOURCE_DEFINITION, text)
    for found in read:
        assert set(found.get("spec", {})) <= {"conversion"}


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
