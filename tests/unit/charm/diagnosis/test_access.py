"""Rights, the Lease and clocks."""

import datetime
import pathlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from diagnosis import access

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
ROLES = list(yaml.safe_load_all(pathlib.Path("rbac/roles.yaml").read_text()))
NEEDS = access.needs(ROLES, model="ai", application="mesh")


def test_rights_are_those_of_the_shipped_roles_with_our_names():
    by_role = {need.role for need in NEEDS}
    assert "ai-mesh-mesh" in by_role
    assert "mesh-model" in by_role
    assert access.Need("patch", "", "namespaces", "ai", "ai", "mesh-model") in NEEDS
    assert not any("kubeflow" in need.role + need.namespace + need.name for need in NEEDS)


def test_every_optional_role_is_known_by_the_end_of_its_name():
    optional = {role["metadata"]["name"].rpartition("-")[2] for role in ROLES} - {"mesh", "model"}
    assert {f"-{end}" for end in optional} == access.OPTIONAL.keys()


def judged(missing):
    answers = {need: need not in missing for need in NEEDS}
    return list(access.rights(answers, optional=access.OPTIONAL, application="mesh"))


@given(st.sets(st.sampled_from(NEEDS), max_size=4))
def test_missing_right_is_broken_unless_its_role_may_be_left_out(missing):
    needed = {need for need in missing if not need.role.endswith(tuple(access.OPTIONAL))}
    found = judged(missing)
    assert {each.level.value for each in found} == ({"✗"} if needed else {"✓"})
    text = " ".join(each.seen for each in found)
    assert not needed or any(need.text in text for need in needed)


def test_right_for_the_ingress_is_told_from_those_for_pods():
    ingress = {need.text for need in NEEDS if access.is_for_ingress(need)}
    assert "create gateways.networking.istio.io" in ingress
    assert "create authorizationpolicies.security.istio.io" in ingress
    assert not {"list pods", "list authorizationpolicies.security.istio.io"} & ingress


def test_review_asks_for_a_subresource_apart():
    asked = access.Need("get", "", "pods/log").review()["spec"]["resourceAttributes"]
    assert (asked["resource"], asked["subresource"]) == ("pods", "log")


@given(st.integers(0, 200), st.integers(1, 60))
def test_lease_is_held_until_three_of_its_lengths_are_over(age, length):
    renewed = (NOW - datetime.timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    spec = {"holderIdentity": "app/0", "renewTime": renewed, "leaseDurationSeconds": length}
    (found,) = access.lease({"spec": spec}, now=NOW, application="app")
    assert (found.level.value == "✓") == (age <= 3 * length)
    assert "app/0" in found.seen


@pytest.mark.parametrize(("found", "level"), [(None, "✗"), ({"spec": {}}, "!")])
def test_lease_that_nobody_holds(found, level):
    (said,) = access.lease(found, now=NOW, application="app")
    assert said.level.value == level


@given(st.integers(-100, 100), st.integers(-100, 100))
def test_clocks_may_differ_by_half_a_minute(own, node):
    found = list(
        access.clock(
            local=NOW + datetime.timedelta(seconds=own),
            server=NOW,
            nodes={"n1": NOW + datetime.timedelta(seconds=node)},
        )
    )
    wrong = [abs(own) > 30, node > 30]
    assert sum(each.level.value == "✗" for each in found) == sum(wrong)


def test_clock_of_the_api_server_may_be_unknown():
    (found,) = access.clock(local=NOW, server=None, nodes={})
    assert "is not known" in found.seen
