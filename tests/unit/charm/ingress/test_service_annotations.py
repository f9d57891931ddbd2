"""Annotations on the Service of a gateway that the options name: set, recorded and restored."""

import copy
import json

import pytest

from integrator_contract import names
from tests.unit.charm.ingress_world import OURS, OWN, auth, route

OTHER = json.dumps({"owner": "other.integrator", "set": {"d": "1"}, "before": {"d": "0"}})


@pytest.fixture
def annotated(world):
    """A model whose gateway's Service had an annotation before."""
    world.related = [route(), auth()]
    service(world)["metadata"]["annotations"] = {"d": "0"}
    world.config["gateway_service_annotations"] = "{d: '1', e.f/g: h}"
    world.fake.may_change = {"services istio-ingress istio-ingressgateway"}
    return world


def service(world):
    return world.fake.find("Service", "istio-ingressgateway", "istio-ingress")


def live(world):
    """The annotations without the record, and what the label says."""
    metadata = service(world)["metadata"]
    found = {**metadata["annotations"]}
    found.pop(names.ANNOTATIONS, None)
    return found, metadata.get("labels", {}).get(names.ANNOTATED_BY)


SET = {"d": "1", "e.f/g": "h"}, f"kf.{OURS}"


def test_annotations_are_set_changed_and_restored(annotated):
    assert annotated.status().name == "active"
    assert live(annotated) == SET
    annotated.fake.writes.clear()
    annotated.run()
    assert annotated.fake.writes == []
    annotated.config["gateway_service_annotations"] = "{d: '2', x: y}"
    annotated.run()
    assert live(annotated)[0] == {"d": "2", "x": "y"}
    del annotated.config["gateway_service_annotations"]
    annotated.run()
    assert live(annotated) == ({"d": "0"}, None)
    assert names.ANNOTATIONS not in service(annotated)["metadata"]["annotations"]


@pytest.mark.parametrize("is_removed", [True, False])
def test_annotations_go_with_the_ingress_and_the_record_names_their_service(annotated, is_removed):
    annotated.run()
    changed, record = "patch services istio-ingressgateway", "secrets mesh-2-record"
    writes = annotated.fake.writes
    assert writes[writes.index(changed) - 1] == f"patch {record}"
    writes.clear()
    if is_removed:
        annotated.remove()
    else:
        annotated.related.clear()
        annotated.run()
    assert live(annotated) == ({"d": "0"}, None)
    assert writes.index(changed) < writes.index(f"delete {record}")


def test_annotations_go_where_another_gateway_is_named_and_follow_it(annotated):
    annotated.run()
    annotated.config |= OWN
    annotated.run()
    assert live(annotated) == ({"d": "0"}, None)
    own = annotated.fake.find("Service", f"{OURS}-gateway", "kf")["metadata"]
    assert own["annotations"].items() >= SET[0].items()


def test_what_another_client_changed_since_stays(annotated):
    annotated.run()
    service(annotated)["metadata"]["annotations"]["d"] = "theirs"
    del annotated.config["gateway_service_annotations"]
    annotated.run()
    assert live(annotated) == ({"d": "theirs"}, None)


def test_what_another_client_sets_in_between_is_what_comes_back(annotated):
    wanted = annotated.config.pop("gateway_service_annotations")
    annotated.run()
    theirs = copy.deepcopy(service(annotated))
    theirs["metadata"]["annotations"]["d"] = "theirs"
    annotated.fake.interference.append(lambda: annotated.fake.add(theirs))
    annotated.config["gateway_service_annotations"] = wanted
    annotated.run()
    assert live(annotated) == SET
    del annotated.config["gateway_service_annotations"]
    annotated.run()
    assert live(annotated) == ({"d": "theirs"}, None)


def test_service_that_another_integrator_annotated_is_left_alone(annotated):
    annotated.fake.namespace("other")
    annotated.fake.application("integrator", "other")
    service(annotated)["metadata"]["annotations"] |= {"d": "1", names.ANNOTATIONS: OTHER}
    reference = "Service istio-ingress/istio-ingressgateway"
    problem = f"{reference}: its annotations are managed by other.integrator"
    assert annotated.status().message == f"gateway-service-annotations: {problem}"
    assert live(annotated) == ({"d": "1"}, None)
    # Once that application is gone, what it recorded is restored in its place.
    annotated.fake.delete("StatefulSet", "integrator", "other")
    annotated.run()
    assert live(annotated) == SET
    del annotated.config["gateway_service_annotations"]
    annotated.run()
    assert live(annotated) == ({"d": "0"}, None)


def test_record_that_can_not_be_read_counts_as_none(annotated):
    service(annotated)["metadata"]["annotations"][names.ANNOTATIONS] = "nonsense"
    annotated.run()
    assert live(annotated) == SET


def test_record_on_a_service_that_we_never_annotated_is_not_followed(annotated):
    """Any tenant can write such a record on a Service."""
    forged = {"owner": f"kf.{OURS}", "set": {"d": "0"}, "before": {"d": None}}
    service(annotated)["metadata"]["annotations"][names.ANNOTATIONS] = json.dumps(forged)
    del annotated.config["gateway_service_annotations"]
    annotated.run()
    assert live(annotated)[0] == {"d": "0"}
