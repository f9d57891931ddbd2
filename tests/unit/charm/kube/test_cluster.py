"""Answers that can not be read are told by their object; what nests too much costs itself."""

import json

import pytest

from istio_integrator.kube import cluster, errors, fences

DEEP = "[" * 1000 + "]" * 1000
NAMED = {"name": "a", "namespace": "b"}


def config_map(fake, name, text="text"):
    metadata = {"name": name, "namespace": "kubeflow"}
    return fake.add({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "x": text})


def test_object_that_nests_too_much_is_left_out_of_its_list_and_named(fake):
    fences.forget()
    for name, text in (("one", "text"), ("deep", "@deep@"), ("other", "text")):
        config_map(fake, name, text)
    fake.spelled['"@deep@"'] = DEEP

    found = fake.api().list(cluster.CONFIG_MAP, "kubeflow")

    assert [each["metadata"]["name"] for each in found] == ["one", "other"]
    assert [*fences.noted()] == ["ConfigMap kubeflow/deep"]
    fences.forget()


@pytest.mark.parametrize(
    ("kind", "namespace", "reference"),
    [
        (cluster.CONFIG_MAP, "kubeflow", "ConfigMap kubeflow/garbled"),
        (cluster.NODE, None, "Node garbled"),
    ],
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


def test_what_is_in_no_namespace_lacks_none():
    assert cluster.lack({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}) == ""
