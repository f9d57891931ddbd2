"""One guard becomes another while others are served on the same gateway."""

import copy
import dataclasses

import pytest

from istio_integrator.ingress import authorization, guard_change
from tests.unit.charm.ingress.test_guards import SERVICE, rendered
from tests.unit.charm.ingress_world import auth, route

GUARD = "istio-integrator.kubeflow.istio-integrator"


@pytest.fixture
def wanted():
    return rendered(authorization.Guard(service=SERVICE))


def former(guard):
    """The same guard as an earlier revision wrote it: other filters, switched on otherwise."""
    found = copy.deepcopy(guard)
    for patch in found["spec"]["configPatches"]:
        value = patch["patch"]["value"]
        if patch["applyTo"] == "HTTP_FILTER":
            value["typed_config"]["@type"] = "former"
        else:
            value["typed_per_filter_config"] = {"former": True}
    return found


def parted(guard):
    patches = guard["spec"]["configPatches"]
    filters = [each for each in patches if each["applyTo"] == "HTTP_FILTER"]
    return filters, [each for each in patches if each["applyTo"] != "HTTP_FILTER"]


def test_filters_change_before_what_switches_them_on(wanted):
    found = former(wanted)
    step = guard_change.between(found, wanted)
    assert parted(step) == (parted(wanted)[0], parted(found)[1])
    assert step["metadata"] == wanted["metadata"]
    assert guard_change.between(step, wanted) is None


def test_one_step_is_enough_where_only_filters_or_only_routes_change(wanted):
    old = former(wanted)
    for filters, rest in ((old, wanted), (wanted, old), (wanted, wanted)):
        patches = [*parted(filters)[0], *parted(rest)[1]]
        found = {**wanted, "spec": {**wanted["spec"], "configPatches": patches}}
        assert guard_change.between(found, wanted) is None


def test_filters_that_are_switched_on_otherwise_are_none_for_the_routes_that_stand(wanted):
    found = former(wanted)
    for patch in parted(found)[0]:
        patch["patch"]["value"]["disabled"] = not patch["patch"]["value"]["disabled"]
    assert guard_change.between(found, wanted) is None


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(authorization.Guard(), id="closed"),
        pytest.param(
            authorization.Guard(service=dataclasses.replace(SERVICE, port=81)),
            id="another service",
        ),
        pytest.param(
            authorization.Guard(
                service=dataclasses.replace(SERVICE, response_headers=("x-user",))
            ),
            id="another word",
        ),
    ],
)
def test_routes_that_take_away_something_else_stand_before_no_new_filters(wanted, other):
    assert guard_change.between(former(rendered(other)), wanted) is None


def test_no_guard_and_one_without_routes_are_replaced_at_once(wanted):
    assert guard_change.between(None, wanted) is None
    found = former(wanted)
    found["spec"]["configPatches"] = parted(found)[0]
    assert guard_change.between(found, wanted) is None


def test_refresh_writes_the_filters_of_a_guard_and_then_the_rest(world):
    world.related = [route(), auth()]
    world.config = {"hosts": "kubeflow.example.com"}
    world.run()
    now = copy.deepcopy(world.guard()["spec"])
    world.guard()["spec"] = former(world.guard())["spec"]
    world.fake.writes.clear()
    world.run()
    assert world.fake.writes.count(f"patch envoyfilters {GUARD}") == 2
    assert world.guard()["spec"] == now
    world.fake.writes.clear()
    world.run()
    assert world.fake.writes == []
