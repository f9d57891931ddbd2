"""Each object of a list is told what it lacks."""

import json

import pytest

from istio_integrator.kube import fences, listing

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
