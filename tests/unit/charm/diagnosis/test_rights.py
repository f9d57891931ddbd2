"""Rights that the charm lacks."""

import pathlib
import re
import types

from hypothesis import given, settings
from hypothesis import strategies as st

from istio_integrator.config import config
from istio_integrator.diagnosis.checks import rights
from istio_integrator.messages import Said

TEXT = pathlib.Path("rbac/roles.yaml").read_text()

ROLES = rights.roles(TEXT, model="ai", application="mesh")

NEEDS = rights.needs(ROLES, model="ai")


def test_rights_are_those_of_the_shipped_roles_with_our_names():
    by_role = {need.role for need in NEEDS}
    assert "ai-mesh-mesh" in by_role
    assert "mesh-model" in by_role
    assert rights.Need("patch", "", "namespaces", "ai", "ai", "mesh-model") in NEEDS
    hook = "0-istio-integrator.ai.mesh"
    assert hook in {
        each.name for each in NEEDS if each.resource == "mutatingwebhookconfigurations"
    }
    assert not any(re.search("[A-Z]", need.role + need.namespace + need.name) for need in NEEDS)


def test_every_optional_role_is_known_by_the_end_of_its_name():
    optional = {role["metadata"]["name"].rpartition("-")[2] for role in ROLES} - {
        "mesh",
        "model",
        "proxies",
    }
    assert {f"-{end}" for end in optional} == rights.OPTIONAL.keys()


def judged(missing):
    def create(review):
        asked = review["spec"]["resourceAttributes"]
        is_lacking = asked["verb"] == "*" or any(need.review() == review for need in missing)
        return {"status": {"allowed": not is_lacking}}

    facts = types.SimpleNamespace(
        cluster=types.SimpleNamespace(create=create),
        model="ai",
        application="mesh",
        config=config.Config(gateway_service="a/b", hosts="x.example.com", tenant_policy="off"),
        exposes=True,
    )
    return list(rights.rights(facts))


# Each reads the shipped roles.
@settings(max_examples=20)
@given(st.sets(st.sampled_from(NEEDS), max_size=4))
def test_missing_right_is_broken_unless_its_role_may_be_left_out(missing):
    needed = {need for need in missing if not need.role.endswith(tuple(rights.OPTIONAL))}
    found = judged(missing)
    assert {each.said for each in found} == {Said.RIGHTS_MISSING if needed else Said.RIGHTS_GIVEN}
    text = " ".join(each.seen for each in found)
    assert not needed or any(need.text in text for need in needed)


def test_right_for_the_ingress_is_told_from_those_for_pods():
    ingress = {need.text for need in NEEDS if rights.is_for_ingress(need)}
    assert "create gateways.networking.istio.io kubeflow-gateway" in ingress
    assert "list services" in ingress
    assert any(text.startswith("delete authorizationpolicies") for text in ingress)
    others = {"list pods", "list authorizationpolicies.security.istio.io"}
    assert not {*others, "list sidecars.networking.istio.io"} & ingress
    assert not any(text.endswith("services istio-integrator-admission") for text in ingress)


def test_review_asks_for_a_subresource_apart():
    asked = rights.Need("get", "", "pods/exec").review()["spec"]["resourceAttributes"]
    assert (asked["resource"], asked["subresource"]) == ("pods", "exec")
