"""Only declared callers are admitted, and an application's policies affect only itself."""

import fnmatch
import json

from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.policies.decide import decide
from istio_integrator.relations import endpoints, service_mesh
from tests.unit.charm.security import callers
from tests.unit.charm.security.callers import GATEWAY, MODEL, NAME, Call, sa
from tests.unit.hostile_texts import JSON

APPS = ("a", "b", "c")
PORTS = (1, 2, 3)
SERVICES = [callers.service(app, *((port, port + 10) for port in PORTS)) for app in APPS]
PODS = [callers.pod(app) for app in APPS]

parts = st.fixed_dictionaries(
    {},
    optional={
        "ports": st.none() | st.lists(st.sampled_from(PORTS), max_size=2),
        "methods": st.none() | st.lists(st.sampled_from(["GET", "POST"]), max_size=2),
        "paths": st.none() | st.lists(st.sampled_from(["/x", "/x/*", "*/y"]), max_size=2),
    },
)
app_policies = st.builds(
    lambda source, target, stated, namespace: callers.policy(
        source, target, *stated, namespace=namespace
    ),
    st.sampled_from(APPS),
    st.sampled_from(APPS),
    st.lists(parts, max_size=2),
    st.sampled_from([MODEL, "elsewhere"]),
)
unit_policies = st.builds(
    lambda source, target, ports: callers.policy(
        source, target, *({"ports": each} for each in ports), target_type="unit"
    ),
    st.sampled_from(APPS),
    st.sampled_from(APPS),
    st.lists(st.lists(st.sampled_from(PORTS), min_size=1, max_size=2), max_size=2),
)
stated = st.lists(app_policies | unit_policies, max_size=4)
routes = st.sets(st.tuples(st.sampled_from(APPS), st.sampled_from(PORTS)), max_size=3)
modes = st.sampled_from(["related", "closed"])
calls = st.builds(
    Call,
    st.sampled_from(["", GATEWAY, *map(sa, APPS), sa("a", "elsewhere"), sa("d")]),
    st.sampled_from([*PORTS, *(port + 10 for port in PORTS)]),
    st.sampled_from(["GET", "POST"]),
    st.sampled_from(["/", "/x", "/x/z", "/q/y"]),
)


def _stated(policy, target, call):
    """Tell whether one policy, as its application wrote it, is about a call."""
    if call.principal != sa(policy["source_app_name"], policy["source_namespace"]):
        return False
    if policy["target_app_name"] != target:
        return False
    is_unit = policy["target_type"] == "unit"
    port = call.port if is_unit else call.port - 10
    if not is_unit and port not in PORTS:
        return False
    if is_unit:
        # Ports of units are joined: one endpoint without any is no restriction.
        listed = [each.get("ports") for each in policy["endpoints"]]
        return not listed or not all(listed) or any(port in each for each in listed)
    return any(
        (not each.get("ports") or port in each["ports"])
        and (not each.get("methods") or call.method in each["methods"])
        and (
            not each.get("paths")
            or any(fnmatch.fnmatchcase(call.path, one) for one in each["paths"])
        )
        for each in policy["endpoints"] or [{}]
    )


@given(st.dictionaries(st.sampled_from(APPS), stated), routes, modes, st.sampled_from(APPS), calls)
def test_caller_is_admitted_exactly_where_somebody_named_it(by_app, routed, mode, target, call):
    consumers = [
        callers.said(app, *policies, relation=number)
        for number, (app, policies) in enumerate(by_app.items())
    ]
    led = {"routed": routed, "gateways": (GATEWAY,)}
    decision = decide(callers.asked(*SERVICES, *PODS, *consumers, mode=mode, **led))
    own = [one for one in by_app.get(target, ()) if one["target_app_name"] == target]
    is_routed = any(app == target for app, _ in routed)
    is_named = any(_stated(each, target, call) for each in own)
    is_led = call.principal == GATEWAY and (target, call.port - 10) in routed
    is_open = mode == "related" and not own and not is_routed
    assert callers.admits(decision, {NAME: target}, call) == (is_named or is_led or is_open)


hostile = (
    JSON.map(json.dumps)
    | st.text(max_size=20)
    | st.lists(app_policies | unit_policies | JSON, max_size=4).map(json.dumps)
)


@given(stated, hostile, routes, modes)
def test_one_applications_words_change_no_other_workloads_policy(good, bad, routed, mode):
    ours = callers.said("a", *good)
    theirs = service_mesh.read_policies(endpoints.Bag(4, "b", {"policies": bad}), model=MODEL)
    asked = {"mode": mode, "routed": routed, "gateways": (GATEWAY,)}

    def of_others(consumers):
        decision = decide(callers.asked(*SERVICES, *PODS, *consumers, **asked))
        return [one for one in decision.policies if dict(one.selector)[NAME] != "b"]

    assert of_others([ours, theirs]) == of_others([ours])
