"""Policies in the cluster: no declared caller is denied while they are written or removed."""

import collections
import dataclasses
import json

import pytest
from ops import testing

from tests.unit.cases import cases
from tests.unit.charm import ambient_objects, fake_cluster, ingress_world
from tests.unit.charm.security import members
from tests.unit.charm.security.applications import add_application, mesh, written
from tests.unit.charm.security.callers import GATEWAY, NAME, policy, sa

CLOSED = "mesh-2-closed"
AT_NO_PORT = policy("kfp-ui", "kfp-api", {"ports": [99]})


@pytest.fixture
def fake(monkeypatch):
    found = fake_cluster.FakeCluster()
    found.namespace("kf")
    ingress_world.connect(found, monkeypatch)
    pod = found.find("Pod", "gateway-0", "istio-ingress")
    pod["spec"]["serviceAccountName"] = "istio-ingressgateway"
    for name, port in (("kfp-ui", 3000), ("kfp-api", 8888), ("minio", 9000)):
        add_application(found, name, port)
    return found


@pytest.fixture
def world(fake):
    related = ingress_world.auth(), mesh("kfp-api", policy("kfp-ui", "kfp-api"))
    return ingress_world.World(fake, ingress_world.route(), *related, authorization="related")


def writes(world):
    """Return the writes of a hook to policies, in their order."""
    world.fake.writes.clear()
    world.run()
    found = (line.split() for line in world.fake.writes)
    return [(verb, name) for verb, kind, name, *_ in found if kind == "authorizationpolicies"]


def principals(spec):
    return [
        name
        for rule in spec["rules"]
        for source in rule.get("from", ())
        for name in source["source"]["principals"]
    ]


def test_related_workloads_are_called_by_gateway_and_stated_callers(world):
    world.run(leader=False)
    assert not written(world.fake)
    assert "callers named for 2 workloads" in world.status().message
    found = written(world.fake)
    assert {name: principals(spec) for name, spec in found.items()} == {
        "kfp-ui": [GATEWAY],
        "kfp-api": [sa("kfp-ui")],
    }
    assert found["kfp-api"]["rules"][0]["to"] == [{"operation": {"ports": ["8888"]}}]
    assert writes(world) == []
    # A Service of the same name elsewhere authenticates.
    world.fake.put("Service", "kfp-api", "sso")
    world.related[1] = ingress_world.auth(service="kfp-api", namespace="sso", port=8888)
    world.run()
    assert principals(written(world.fake)["kfp-api"]) == [sa("kfp-ui")]


def test_closed_model_is_closed_after_everybody_is_let_in(world):
    world.config["authorization"] = "closed"
    done = writes(world)
    found = written(world.fake)
    assert found[""] == {"action": "ALLOW"}
    assert done[-1][1] == CLOSED
    assert len(done) == len(found)
    count = f"callers named for {len(found) - 1} workloads, all others closed"
    assert count in world.status().message


@pytest.mark.parametrize(("mode", "left"), [("off", set()), ("related", {"kfp-ui", "kfp-api"})])
def test_model_is_opened_before_anybody_loses_a_rule(world, mode, left):
    world.config["authorization"] = "closed"
    world.run()
    world.config["authorization"] = mode
    assert writes(world)[0] == ("delete", CLOSED)
    assert set(written(world.fake)) == left


def test_gateway_may_call_before_it_is_led_there(world):
    world.run()
    world.fake.writes.clear()
    world.related.append(ingress_world.route("minio", port=9000))
    world.run()
    kinds = [line.split()[1] for line in world.fake.writes]
    assert kinds.index("authorizationpolicies") < kinds.index("virtualservices"), kinds


def test_removal_takes_every_policy_back_and_none_of_others(world):
    theirs = world.fake.put("AuthorizationPolicy", "theirs", labels={}, spec={"action": "DENY"})
    before = json.dumps(theirs, sort_keys=True)
    world.config["authorization"] = "closed"
    world.run()
    world.remove()
    assert not written(world.fake)
    assert json.dumps(theirs, sort_keys=True) == before


def test_relation_that_goes_takes_its_policy_with_it(world):
    world.run()
    world.related = [one for one in world.related if one.endpoint != "service-mesh"]
    assert "callers named for 1 workload ·" in world.status().message
    assert set(written(world.fake)) == {"kfp-ui"}


@pytest.mark.parametrize("mode", ["related", "closed"])
def test_application_that_is_no_longer_understood_keeps_its_policy_as_it_stands(world, mode):
    world.config["authorization"] = mode
    some = policy("dashboard", "kfp-api", {"methods": ["GET"]})
    world.related[-1] = mesh("kfp-api", policy("kfp-ui", "kfp-api"), some)
    world.run()
    before = written(world.fake)
    assert len(before["kfp-api"]["rules"]) == 2
    for number, one in enumerate(world.related):
        if one.endpoint == "service-mesh":
            bag = {"policies": "[5]"}
            world.related[number] = dataclasses.replace(one, remote_app_data=bag)
    assert writes(world) == []
    assert written(world.fake) == before
    assert isinstance(world.status(), testing.BlockedStatus)
    assert "kfp-api: policy 1" in world.status().message


def test_caller_that_is_withdrawn_loses_access_beside_a_policy_that_is_not_understood(world):
    honest = policy("kfp-ui", "kfp-api")
    for stated in ((honest, policy("dashboard", "kfp-api")), (honest, 5)):
        world.related = [one for one in world.related if one.endpoint != "service-mesh"]
        world.related.append(mesh("kfp-api", *stated))
        world.run()
    rules = json.dumps(written(world.fake)["kfp-api"])
    assert "sa/kfp-ui" in rules
    assert "sa/dashboard" not in rules
    assert "kfp-api: policy 2" in world.status().message


def test_policies_that_another_team_forbids_are_named_and_cost_no_other(world, caplog):
    denied = 'admission webhook "a.b" denied the request: no'
    world.config["authorization"] = "closed"
    world.fake.deny("AuthorizationPolicy", 403, denied, having="kfp-")
    world.hook()
    for name in ("kfp-api", "kfp-ui"):
        assert f'webhook "a.b" refuses AuthorizationPolicy mesh-2-{name}-' in caplog.text
    assert "active: callers named for 1 workload, all others closed." in caplog.text
    assert set(written(world.fake)) == {"", "admission-webhook"}


@cases(
    ("options", "accounts"),
    real_accounts_of_the_pods=({}, [sa(each, "istio-ingress") for each in ("gateway", "other")]),
    own_gateway_that_is_still_to_come=(
        ingress_world.OWN,
        [sa("istio-ingressgateway-workload-service-account")],
    ),
)
def test_gateway_is_admitted_by_its_accounts(world, options, accounts):
    pod = world.fake.find("Pod", "gateway-0", "istio-ingress")
    pod["spec"]["serviceAccountName"] = "other"
    ingress_world.pod_of(world.fake, name="gateway-1")
    world.config |= options
    world.run()
    assert principals(written(world.fake)["kfp-ui"]) == accounts


@cases(
    ("application", "change"),
    port_of_no_pod=("kfp-api", lambda world: world.related.append(mesh("kfp-api", AT_NO_PORT))),
    no_gateway=("kfp-ui", lambda world: world.fake.delete("Pod", "gateway-0", "istio-ingress")),
)
def test_workload_without_rules_is_closed_to_all(world, application, change):
    world.related = [one for one in world.related if one.endpoint != "service-mesh"]
    change(world)
    world.run()
    # A rule without fields would match every request, and DENY without rules none.
    labels = {NAME: application}
    assert written(world.fake)[application] == {
        "selector": {"matchLabels": labels},
        "action": "ALLOW",
    }


def test_model_behind_a_waypoint_gets_no_policies_and_is_told_so(world):
    waypoint = {"istio.io/use-waypoint": "theirs"}
    world.fake.find("Namespace", "kf")["metadata"]["labels"] |= waypoint
    world.run()
    assert written(world.fake)
    ambient_objects.into_ambient(world.fake, **waypoint)
    assert world.status().message.startswith(
        "waypoint theirs hides the callers; run: juju config mesh-2 authorization=off; "
    )
    assert not written(world.fake)


def test_requests_that_ztunnel_does_not_see_are_counted(world):
    ambient_objects.into_ambient(world.fake)
    limited = {"methods": ["GET"]}
    world.related[2:] = [
        mesh(each, policy("kfp-ui", each, limited)) for each in ("kfp-api", "minio")
    ]
    assert "requests to 2 of them are ignored" in world.status().message


@cases(
    ("labels", "waypoint", "of_namespace"),
    of_its_namespace=({"istio.io/use-waypoint": "theirs"}, "kf/sa/theirs", ""),
    of_another=(
        {"istio.io/use-waypoint": "far", "istio.io/use-waypoint-namespace": "shared"},
        *("shared/sa/far", "none"),
    ),
    none=({"istio.io/use-waypoint": "none"}, None, "none"),
)
def test_waypoint_of_a_service_may_call_it_in_ambient_mode_alone(
    world, labels, waypoint, of_namespace
):
    service = world.fake.find("Service", "kfp-api", "kf")
    service["metadata"]["labels"] |= labels
    world.run()
    before = written(world.fake)
    ambient_objects.into_ambient(world.fake, **{"istio.io/use-waypoint": of_namespace})
    assert isinstance(world.status(), testing.ActiveStatus)
    more = {f"cluster.local/ns/{waypoint}"} if waypoint else set()
    after = written(world.fake)
    assert {name: set(principals(spec)) for name, spec in after.items()} == {
        name: set(principals(spec)) | (more if name == "kfp-api" else set())
        for name, spec in before.items()
    }


@cases(
    ("options", "labels"),
    its_namespace_is_a_member=({"authorization": "off"}, {}),
    pods_are_selected=({"included_pods": "a=b"}, {"sidecar.istio.io/inject": "true"}),
    pods_are_selected_in_ambient_mode=(
        {"included_pods": "a=b", "mesh_mode": "ambient"},
        {"istio.io/dataplane-mode": "ambient"},
    ),
)
def test_application_is_answered_with_the_labels_of_members(world, options, labels):
    ambient_objects.install_ambient(world.fake)
    world.config |= options
    world.run()
    # Without the labels, pods would leave the mesh.
    fake_cluster.uninstall_istio(world.fake)
    world.run()
    (relation,) = (one for one in world.related if one.endpoint == "service-mesh")
    told = {key: json.loads(value) for key, value in relation.local_app_data.items()}
    assert told == {"labels": labels, "mesh_type": "istio"}


@cases(
    "calling",
    webhook=members.webhook("hooks", "called"),
    conversion=members.definition("a.b", "called"),
    api=members.api_service("v1.called", "called"),
)
def test_api_servers_may_call_a_closed_model_without_a_relation(world, calling):
    add_application(world.fake, "called", 443)
    world.fake.add(calling)
    world.config["authorization"] = "closed"
    world.run()
    assert written(world.fake)["called"]["rules"] == [{"to": [{"operation": {"ports": ["443"]}}]}]


def idle(world, **options):
    """Count the requests of a hook that has nothing to do."""
    world.config = options
    world.run()
    world.fake.requests.clear()
    world.run(lambda ctx: ctx.on.update_status())
    return collections.Counter(world.fake.requests)


@cases(
    ("options", "most"),
    related=({"authorization": "related"}, 11),
    closed=({"authorization": "closed"}, 11),
    strict=({"mtls": "strict"}, 11),
    both=({"authorization": "closed", "mtls": "strict"}, 14),
)
def test_idle_hook_lists_no_kind_twice_for_security(world, options, most):
    for name in ("kfp-ui", "kfp-api"):
        world.fake.add(members.stateful_set(name))
    more = idle(world, **options) - idle(world, authorization="off", mtls="inherit")
    assert not [asked for asked, count in more.items() if count > 1]
    assert more.total() <= most, more
