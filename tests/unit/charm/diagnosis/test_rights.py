"""Rights that the charm lacks."""

import dataclasses

from tests.unit.cases import cases
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import state
from tests.unit.charm.diagnosis.world import diagnose
from tests.unit.charm.ingress_world import route

EVERYWHERE = ""
GATEWAY_API = {"routing": "gateway-api"}


@cases(
    ("right", "options", "is_named"),
    pods=("list pods kf", {}, True),
    injectors=("list mutatingwebhookconfigurations", {}, True),
    policies_for_pods=("list authorizationpolicies", {}, True),
    sidecars=("list sidecars", {}, True),
    webhook=("patch services kf mesh-2-admission", {}, True),
    exec_is_a_fallback=("create pods/exec", {}, False),
    diagnose=("list wasmplugins", {}, False),
    replace=("delete pods", {"delete_broken_pods": True}, True),
    replace_is_off=("delete pods", {}, False),
    authorization=("list apiservices", {"authorization": "related"}, True),
    mtls=("list destinationrules", {"mtls": "strict"}, True),
    neither=("list apiservices", {}, False),
    training=("list ippools", {}, True),
    training_is_off=("list ippools", {"pod_networks": "none"}, False),
    own_gateway_is_not_related=("list serviceaccounts kf", {}, False),
    ingress_is_not_related=("list virtualservices", {}, False),
    own_gateway=("list serviceaccounts kf", {"related": True}, True),
    own_gateway_beside_a_named_one=(
        "list serviceaccounts kf",
        {"related": True, "gateway_service": "a/b", "hosts": "a.example"},
        False,
    ),
    ingress=("list virtualservices", {"related": True}, True),
    gateway=(
        "create gateways kf networking.istio.io",
        {"related": True, "tenant_policy": "off"},
        True,
    ),
    tenants_are_not_related=("list grpcroutes", {}, False),
    tenants=("list grpcroutes", {"related": True}, True),
    tenants_are_off=("list grpcroutes", {"related": True, "tenant_policy": "off"}, False),
    gateway_api=("list gatewayclasses", {"related": True, **GATEWAY_API}, True),
    virtual_services=("list gatewayclasses", {"related": True}, False),
)
def test_missing_right_is_broken_unless_its_role_may_be_left_out(
    ctx, fake, right, options, is_named
):
    fake_cluster.install_istio(fake)
    verb, resource, *model = right.split()
    fake.forbidden.add((verb, resource, *(model or [EVERYWHERE])))
    related = {route()} if options.get("related") else set()
    chosen = {key: value for key, value in options.items() if key != "related"}
    given = dataclasses.replace(state(**chosen), relations=related)
    rows = diagnose(ctx, "rights", given)
    assert {row.message for row in rows} == {"RIGHTS_MISSING" if is_named else "RIGHTS_GIVEN"}
    assert any(f"{verb} {resource}" in row.seen for row in rows) is is_named


def test_trust_is_every_right(ctx, fake):
    fake_cluster.install_istio(fake)
    (found,) = diagnose(ctx, "rights")
    assert found.message == "TRUSTED"
