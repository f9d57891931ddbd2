"""Definitions of resources, whose schemas take megabytes."""

from istio_integrator.kube import cluster
from tests.unit.charm.security import members


def test_of_definitions_name_labels_and_conversion_are_kept_and_no_schema(fake):
    definition = members.definition("a.b", "converter")
    definition["metadata"]["labels"] = {"a": "b"}
    definition["spec"]["versions"] = [{"name": "v1", "schema": {"openAPIV3Schema": {}}}]
    wanted = fake.add(definition)
    listed = fake.api().list
    (found,) = listed(cluster.CUSTOM_RESOURCE_DEFINITION, labels={"a": "b"})
    assert not listed(cluster.CUSTOM_RESOURCE_DEFINITION, labels={"a": "c"})
    assert found["metadata"] == wanted["metadata"]
    assert found["spec"] == {"conversion": wanted["spec"]["conversion"]}
