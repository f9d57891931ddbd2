"""Lists of objects are taken apart, whatever is in them, and each is told what it lacks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.kube import fences, listing

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["metadata", "name", "items", "a"]), inner, max_size=3)
    ),
    max_leaves=12,
)
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,9}[a-z0-9])?", fullmatch=True)


@st.composite
def objects(draw):
    """An object with a name, and beside it whatever may be there."""
    labels = {"name": "label", "namespace": "label"}
    metadata = {"a": draw(VALUES), "labels": labels, "name": draw(NAMES)}
    if draw(st.booleans()):
        metadata["namespace"] = draw(NAMES)
    return {"spec": draw(VALUES), "metadata": metadata, "status": draw(VALUES)}


def depth(value):
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0) if isinstance(value, dict | list) else 0


@given(st.lists(objects(), max_size=4), VALUES, st.sampled_from([None, 1]))
def test_every_object_of_a_list_is_found_with_its_name_and_depth(wanted, beside, indent):
    text = json.dumps(
        {"kind": "List", "metadata": {"name": "all", "a": beside}, "items": wanted, "name": "x"},
        indent=indent,
    )
    found = [*listing.items(text.encode())]

    assert [json.loads(each.text) for each in found] == wanted
    for item, obj in zip(found, wanted, strict=True):
        assert item.name == obj["metadata"]["name"]
        assert item.namespace == obj["metadata"].get("namespace", "")
        assert item.depth == depth(obj)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"]}", b'{"items": {"a": {}}}', b'"items"'])
def test_what_is_no_list_has_no_objects(text):
    assert [*listing.items(text)] == []


NAMED = {"name": "a", "namespace": "b"}


@pytest.mark.parametrize(
    ("obj", "lacks"),
    [
        ({"metadata": NAMED}, ""),
        ({"metadata": {**NAMED, "labels": {"a": "b"}, "annotations": None}}, ""),
        ({}, "it has no name"),
        ({"metadata": []}, "it has no name"),
        ({"metadata": {**NAMED, "name": 1}}, "it has no name"),
        ({"metadata": {"name": "a"}}, "it has no namespace"),
        ({"metadata": {**NAMED, "labels": ["a"]}}, "its labels are no texts"),
        ({"metadata": {**NAMED, "labels": {"a": 1}}}, "its labels are no texts"),
        ({"metadata": {**NAMED, "annotations": {"a": None}}}, "its annotations are no texts"),
        ({"metadata": NAMED, "spec": json.loads("[" * 200 + "]" * 200)}, listing.TOO_DEEP),
    ],
)
def test_what_an_object_lacks_that_all_have_is_said(obj, lacks):
    assert listing.problem(obj, is_namespaced=True) == lacks


def test_what_is_in_no_namespace_lacks_none():
    assert listing.problem({"metadata": {"name": "a"}}, is_namespaced=False) == ""


def test_definition_that_is_none_costs_itself_alone():
    fences.forget()
    first = {"metadata": {"name": "a.example"}, "spec": {"conversion": {"strategy": "Webhook"}}}
    found = [first, {"metadata": {"name": "b.example"}, "spec": []}, {"metadata": {"name": "c"}}]

    kept = [*listing.definitions(json.dumps({"items": found}).encode())]

    assert kept == [found[0], found[2]]
    assert [*fences.noted()] == ["CustomResourceDefinition b.example"]
    fences.forget()
