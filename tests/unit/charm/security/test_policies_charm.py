"""Policies in the cluster: written in an order that shuts nobody out, and taken back."""

import dataclasses
import json

import pytest
from ops import testing

from tests.unit.charm import ambient_objects, fake_cluster, ingress_world
from tests.unit.charm.security import members
from tests.unit.charm.security.callers import GATEWAY, NAME, policy, sa

OURS = "istio-integrator"


def add_application(fake, name, port, **more):
    """Have Juju run an application: its Service and a pod with a sidecar."""
    labels = {NAME: name}
    metadata = {"name": name, "namespace": "kubeflow", "labels": labels}
    fake.add(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"name": "http", "port": port}]},
        }
    )
    containers = [{"name": "charm"}, {"name": "istio-proxy"}]
    fake.add(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "name": f"{name}-0"},
            "spec": {"containers": containers},
            **more,
        }
    )


def mesh(application, *stated, **more):
    bag = {"policies": json.dumps(stated)} if stated else {}
    return testing.Relation("service-mesh", remote_app_name=application, remote_app_data=bag)


@pytest.fixture
def fake(monkeypatch):
    found = fake_cluster.FakeCluster()
    found.namespace("kubeflow")
    ingress_world.connect(found, monkeypatch)
    pod = found.find("Pod", "gateway-0", "istio-ingress")
    pod["spec"]["serviceAccountName"] = "istio-ingressgateway"
    for name, port in (("kfp-ui", 3000), ("kfp-api", 8888), ("minio", 9000)):
        add_application(found, name, port)
    return found


@pytest.fixture
def world(fake):
    return ingress_world.World(
        fake,
        ingress_world.route(),
        ingress_world.auth(),
        mesh("kfp-api", policy("kfp-ui", "kfp-api")),
        authorization="related",
    )


def selected(spec):
    """Return the workload that a policy is for; empty for a policy of the whole namespace."""
    labels = spec.get("selector", {}).get("matchLabels", {})
    return next(iter(labels.values()), "")


def written(fake):
    """Our policies, by the workload that each is for; that for all has no name."""
    return {
        selected(obj["spec"]): obj["spec"]
        for obj in fake.objects.values()
        if obj["kind"] == "AuthorizationPolicy"
        and obj["metadata"]["labels"].get(ingress_world.OWNER)
    }


def principals(spec):
    return [
        name
        for rule in spec["rules"]
        for source in rule["from"]
        for name in source["source"]["principals"]
    ]


def test_related_workloads_are_called_by_gateway_and_stated_callers(world):
    world.run()
    found = written(world.fake)
    assert set(found) == {"kfp-ui", "kfp-api"}
    assert principals(found["kfp-ui"]) == [GATEWAY]
    assert principals(found["kfp-api"]) == [sa("kfp-ui")]
    assert found["kfp-api"]["rules"][0]["to"] == [{"operation": {"ports": ["8888"]}}]
    assert "callers named for 2 workloads" in world.status().message


def test_closed_model_is_closed_after_everybody_is_let_in(world):
    world.config["authorization"] = "closed"
    world.fake.writes.clear()
    world.run()
    found = written(world.fake)
    assert found[""] == {"action": "ALLOW"}
    order = [line for line in world.fake.writes if "authorizationpolicies" in line]
    assert order[-1].endswith("istio-integrator-closed"), order
    assert len(order) == len(found)


def test_model_is_opened_before_anybody_loses_a_rule(world):
    world.config["authorization"] = "closed"
    world.run()
    world.fake.writes.clear()
    world.config["authorization"] = "off"
    world.run()
    assert not written(world.fake)
    order = [line for line in world.fake.writes if "authorizationpolicies" in line]
    assert order[0] == "delete authorizationpolicies istio-integrator-closed", order


def test_stepping_back_to_related_opens_the_rest_first(world):
    world.config["authorization"] = "closed"
    world.run()
    world.config["authorization"] = "related"
    world.fake.writes.clear()
    world.run()
    order = [line for line in world.fake.writes if "authorizationpolicies" in line]
    assert order[0] == "delete authorizationpolicies istio-integrator-closed", order
    assert set(written(world.fake)) == {"kfp-ui", "kfp-api"}


def test_gateway_may_call_before_it_is_led_there(world):
    world.run()
    world.fake.writes.clear()
    world.related.append(ingress_world.route("minio", port=9000))
    world.run()
    kinds = [line.split()[1] for line in world.fake.writes]
    assert kinds.index("authorizationpolicies") < kinds.index("virtualservices"), kinds


def test_second_reconcile_writes_nothing(world):
    world.run()
    world.fake.writes.clear()
    world.run()
    assert not [line for line in world.fake.writes if "authorizationpolicies" in line]


def test_off_writes_nothing_by_default(world):
    del world.config["authorization"]
    world.run()
    assert not written(world.fake)


def test_removal_takes_every_policy_back_and_none_of_others(world):
    theirs = world.fake.add(
        {
            "apiVersion": "security.istio.io/v1",
            "kind": "AuthorizationPolicy",
            "metadata": {"name": "theirs", "namespace": "kubeflow", "labels": {}},
            "spec": {"action": "DENY"},
        }
    )
    before = json.dumps(theirs, sort_keys=True)
    world.config["authorization"] = "closed"
    world.run()
    world.remove()
    assert not written(world.fake)
    assert json.dumps(theirs, sort_keys=True) == before


def test_relation_that_goes_takes_its_policy_with_it(world):
    world.run()
    world.related = [one for one in world.related if one.endpoint != "service-mesh"]
    world.run()
    assert set(written(world.fake)) == {"kfp-ui"}


@pytest.mark.parametrize("mode", ["related", "closed"])
def test_application_that_is_no_longer_understood_keeps_its_policy_as_it_stands(world, mode):
    world.config["authorization"] = mode
    world.run()
    before = written(world.fake)
    for number, one in enumerate(world.related):
        if one.endpoint == "service-mesh":
            bag = {"policies": "[5]"}
            world.related[number] = dataclasses.replace(one, remote_app_data=bag)
    for _ in "ab":
        world.fake.writes.clear()
        out = world.run()
        assert written(world.fake) == before
        assert not [line for line in world.fake.writes if "authorizationpolicies" in line]
    assert out.unit_status.name == "blocked"
    assert "kfp-api: policy 1" in out.unit_status.message


def test_refused_application_is_named_and_costs_no_other(world):
    world.related.append(mesh("minio", policy("*", "minio")))
    out = world.run()
    assert out.unit_status.name == "blocked"
    assert "minio" in out.unit_status.message
    assert principals(written(world.fake)["kfp-api"]) == [sa("kfp-ui")]


def test_principal_is_the_gateways_real_account(world):
    pod = world.fake.find("Pod", "gateway-0", "istio-ingress")
    pod["spec"]["serviceAccountName"] = "other"
    world.run()
    assert principals(written(world.fake)["kfp-ui"]) == ["cluster.local/ns/istio-ingress/sa/other"]


def test_own_gateway_may_call_before_it_is_there(world):
    world.config |= ingress_world.OWN
    world.run()
    own = "cluster.local/ns/kubeflow/sa/istio-ingressgateway-workload-service-account"
    assert own in principals(written(world.fake)["kfp-ui"])


def into_ambient(world, **labels):
    ambient_objects.install_ambient(world.fake)
    space = world.fake.find("Namespace", "kubeflow")
    space["metadata"]["labels"] = {"istio.io/dataplane-mode": "ambient", **labels}


def test_ambient_model_gets_what_ztunnel_can_hold(world):
    world.run()
    sidecars = written(world.fake)
    into_ambient(world)
    assert world.run().unit_status.name == "active"
    ambient = written(world.fake)
    assert principals(ambient["kfp-api"]) == principals(sidecars["kfp-api"])
    operations = [to["operation"] for rule in ambient["kfp-api"]["rules"] for to in rule["to"]]
    assert {key for each in operations for key in each} == {"ports"}


def test_model_behind_a_waypoint_gets_no_policies_and_is_told_so(world):
    into_ambient(world, **{"istio.io/use-waypoint": "theirs"})
    out = world.run()
    assert not written(world.fake)
    assert out.unit_status.message.startswith(
        "waypoint theirs hides the callers; run: juju config istio-integrator authorization=off; "
    )


@pytest.mark.parametrize(
    ("labels", "waypoint"),
    [
        ({"istio.io/use-waypoint": "theirs"}, "kubeflow/sa/theirs"),
        (
            {"istio.io/use-waypoint": "far", "istio.io/use-waypoint-namespace": "shared"},
            "shared/sa/far",
        ),
        ({"istio.io/use-waypoint": "none"}, None),
    ],
)
def test_waypoint_of_a_service_may_call_it_in_ambient_mode_alone(world, labels, waypoint):
    service = world.fake.find("Service", "kfp-api", "kubeflow")
    service["metadata"].setdefault("labels", {}).update(labels)
    world.run()
    before = written(world.fake)
    into_ambient(world)
    world.run()
    more = {f"cluster.local/ns/{waypoint}"} if waypoint else set()
    after = written(world.fake)
    assert {name: set(principals(spec)) for name, spec in after.items()} == {
        name: set(principals(spec)) | (more if name == "kfp-api" else set())
        for name, spec in before.items()
    }


def answered(world):
    (relation,) = (one for one in world.related if one.endpoint == "service-mesh")
    return {key: json.loads(value) for key, value in relation.local_app_data.items()}


def test_application_is_answered_with_no_labels_where_its_namespace_is_a_member(world):
    world.config["authorization"] = "off"
    world.run()
    assert answered(world) == {"labels": {}, "mesh_type": "istio"}


def test_application_is_answered_with_the_label_of_members_where_pods_are_selected(world):
    world.config |= {"included_pods": "a=b"}
    world.run()
    assert answered(world) == {
        "labels": {"sidecar.istio.io/inject": "true"},
        "mesh_type": "istio",
    }


def test_follower_writes_nothing(world):
    world.run(leader=False)
    assert not written(world.fake)


@pytest.mark.parametrize(
    "calling",
    [
        pytest.param(members.webhook("hooks", "called"), id="webhook"),
        pytest.param(members.definition("a.b", "called"), id="conversion"),
        pytest.param(members.api_service("v1.called", "called"), id="API"),
    ],
)
def test_api_servers_may_call_a_closed_model_without_a_relation(world, calling):
    add_application(world.fake, "called", 443)
    world.fake.add(calling)
    world.config["authorization"] = "closed"
    world.run()
    assert written(world.fake)["called"]["rules"] == [{"to": [{"operation": {"ports": ["443"]}}]}]
