"""Rights that the charm lacks."""

import dataclasses

from tests.unit.cases import cases
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import state
from tests.unit.charm.diagnosis.world import diagnose
from tests.unit.charm.ingress_world import route

RELATED = {"related": True}
GATEWAY_API = {**RELATED, "routing": "gateway-api"}
NAMED = {**RELATED, "gateway_service": "a/b", "hosts": "a.example"}
NO_TENANTS = {**RELATED, "tenant_policy": "off"}


@cases(
    ("right", "options", "is_named"),
    pods=("list,watch pods kf", {}, True),
    proxies=("create pods/portforward kf", {}, True),
    evictions=("create pods/eviction kf", {}, True),
    injectors=("list mutatingwebhookconfigurations.admissionregistration.k8s.io", {}, True),
    policies_for_pods=("list authorizationpolicies.security.istio.io", {}, True),
    sidecars=("list sidecars.networking.istio.io", {}, True),
    webhook=("patch services kf mesh-2-admission", {}, True),
    exec_is_a_fallback=("create pods/exec", {}, False),
    claims=("patch namespaces", {}, False),
    diagnose=("list wasmplugins.extensions.istio.io", {}, False),
    replace=("delete pods", {"delete_broken_pods": True}, True),
    replace_is_off=("delete pods", {}, False),
    authorization=("list apiservices.apiregistration.k8s.io", {"authorization": "related"}, True),
    authorization_is_off=("list apiservices.apiregistration.k8s.io", {}, False),
    mtls=("list destinationrules.networking.istio.io", {"mtls": "strict"}, True),
    mtls_is_off=("list destinationrules.networking.istio.io", {}, False),
    training=("list ippools.crd.projectcalico.org", {}, True),
    training_is_off=("list ippools.crd.projectcalico.org", {"pod_networks": "none"}, False),
    own_gateway_is_not_related=("list serviceaccounts kf", {}, False),
    ingress_is_not_related=("list virtualservices.networking.istio.io", {}, False),
    services_are_not_related=("get,list,watch services", {}, False),
    services=("get,list,watch services", RELATED, True),
    services_of_the_model=("list services kf", {}, True),
    own_gateway=("list serviceaccounts kf", RELATED, True),
    own_gateway_beside_a_named_one=("list serviceaccounts kf", NAMED, False),
    own_gateway_beside_that_of_istiod=("list serviceaccounts kf", GATEWAY_API, False),
    ingress=("list virtualservices.networking.istio.io", RELATED, True),
    gateway=("create gateways.networking.istio.io kf kubeflow-gateway", NO_TENANTS, True),
    tenants_are_not_related=("list grpcroutes.gateway.networking.k8s.io", {}, False),
    tenants=("list grpcroutes.gateway.networking.k8s.io", RELATED, True),
    tenants_are_off=("list grpcroutes.gateway.networking.k8s.io", NO_TENANTS, False),
    gateway_api=("list gatewayclasses.gateway.networking.k8s.io", GATEWAY_API, True),
    virtual_services=("list gatewayclasses.gateway.networking.k8s.io", RELATED, False),
)
def test_missing_right_is_broken_unless_its_role_may_be_left_out(
    ctx, fake, right, options, is_named
):
    fake_cluster.install_istio(fake)
    verb, resource, namespace, name, *_ = [*right.split(), "", ""]
    plural, _, group = resource.partition(".")
    verbs = verb.split(",")
    fake.forbidden |= {(verb, plural, namespace, name or group) for verb in verbs}
    related = {route()} if options.get("related") else set()
    chosen = {key: value for key, value in options.items() if key != "related"}
    given = dataclasses.replace(state(**chosen), relations=related)
    rights = ", ".join(f"{verb} {resource} {name}".strip() for verb in verbs)
    said = f"missing permissions: {rights}"
    if not is_named:
        said = "the application has all rights that it needs"
    assert [row.seen for row in diagnose(ctx, "rights", given)] == [said]
