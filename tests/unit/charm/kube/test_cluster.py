"""Answers that can not be read are told by their object; what nests too much costs itself."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.kube import cluster, errors, fences
from istio_integrator.situation import model
from tests.unit.cases import cases
from tests.unit.charm.security import members

DEEP = "[" * 1000 + "]" * 1000
NAMED = {"name": "a", "namespace": "b"}


@pytest.fixture(autouse=True)
def forgotten():
    fences.forget()
    yield
    fences.forget()


def test_object_that_nests_too_much_is_left_out_of_its_list_and_named(fake):
    for name, text in (("one", "text"), ("deep", "@deep@"), ("other", "text")):
        metadata = {"name": name, "namespace": "kubeflow"}
        fake.add({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "x": text})
    fake.spelled['"@deep@"'] = DEEP

    found = fake.api().list(cluster.CONFIG_MAP, "kubeflow")

    assert [each["metadata"]["name"] for each in found] == ["one", "other"]
    assert [*fences.noted()] == ["ConfigMap kubeflow/deep"]


@cases(
    ("kind", "namespace", "reference"),
    namespaced=(cluster.CONFIG_MAP, "kubeflow", "ConfigMap kubeflow/garbled"),
    of_the_cluster=(cluster.NODE, None, "Node garbled"),
)
def test_object_that_can_not_be_read_is_named(fake, kind, namespace, reference):
    metadata = {"name": "garbled", **({"namespace": namespace} if namespace else {})}
    fake.add({"apiVersion": "v1", "kind": kind.name, "metadata": metadata, "x": "@garbled@"})
    fake.spelled['"@garbled@"'] = "no JSON"

    with pytest.raises(errors.GarbledError, match=f"^{reference}: "):
        fake.api().get(kind, "garbled", namespace)


@pytest.mark.parametrize(
    ("obj", "lacks"),
    [
        ({"metadata": NAMED}, ""),
        ({"metadata": {**NAMED, "labels": {"a": "b"}, "annotations": None}}, ""),
        ({"kind": "Node", "metadata": {"name": "a"}}, ""),
        ({}, "it has no name"),
        ({"metadata": []}, "it has no name"),
        ({"metadata": {**NAMED, "name": 1}}, "it has no name"),
        ({"metadata": {"name": "a"}}, "it has no namespace"),
        ({"metadata": {**NAMED, "labels": ["a"]}}, "its labels are no texts"),
        ({"metadata": {**NAMED, "labels": {"a": 1}}}, "its labels are no texts"),
        ({"metadata": {**NAMED, "annotations": {"a": None}}}, "its annotations are no texts"),
        ({"metadata": NAMED, "spec": json.loads("[" * 200 + "]" * 200)}, cluster.TOO_DEEP),
    ],
)
def test_what_an_object_lacks_that_all_have_is_said(obj, lacks):
    assert cluster.lack({"apiVersion": "v1", "kind": "Pod", **obj}) == lacks


@pytest.mark.parametrize("kind", [cluster.GATEWAY, cluster.CUSTOM_RESOURCE_DEFINITION])
def test_kind_that_is_not_served_is_nothing_to_read(fake, kind):
    fake.absent.add(kind.api_version)
    assert fake.api().list(kind) == []
    assert fake.api().get(kind, "a", "b" if kind.namespaced else None) is None


SCHEMA = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(200)}}


def large(name):
    """A definition with a schema, as controllers of Kubeflow have them."""
    definition = members.definition(name, "converter")
    definition["spec"]["versions"] = [{"name": "v1", "schema": {"openAPIV3Schema": SCHEMA}}]
    definition["metadata"]["labels"] = {"a": "b"}
    return definition


def test_of_definitions_name_labels_and_conversion_are_read_and_no_schema(fake):
    wanted = fake.add(large("a.b"))
    for name, spec in (("odd.b", 7), ("odd.c", {"conversion": "x"})):
        fake.add({**large(name), "spec": spec})
    listed = fake.api().list
    (found,) = listed(cluster.CUSTOM_RESOURCE_DEFINITION, labels={"a": "b"})
    assert not listed(cluster.CUSTOM_RESOURCE_DEFINITION, labels={"a": "c"})
    assert found["metadata"] == wanted["metadata"]
    assert found["spec"] == {"conversion": wanted["spec"]["conversion"]}
    assert [call.service for call in model.calls([found], model="kubeflow")] == ["converter"]
    named = {f"CustomResourceDefinition {each}" for each in ("odd.b", "odd.c")}
    assert set(fences.noted()) == named


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
