"""The gateway workload of the model's own, as options make it, on a small API server."""

import pytest
from ops import testing

from tests.unit.cases import cases
from tests.unit.charm import fake_cluster, ingress_world
from tests.unit.charm.diagnosis.world import diagnose_ingress
from tests.unit.charm.ingress_world import OURS, OWN, OWN_LABELS, World, auth, route

NAME = f"{OURS}-gateway"
OBJECTS = ("Role", "RoleBinding", "Service", "Deployment", "PodDisruptionBudget")
ACCOUNT = ("ServiceAccount", "istio-ingressgateway-workload-service-account", "kf")


@pytest.fixture
def world(fake, monkeypatch):
    ingress_world.connect(fake, monkeypatch)
    return World(fake, route(), auth(), **OWN)


def find(world, kind):
    return world.fake.find(kind, NAME, "kf")


def template(world):
    found = find(world, "Deployment")["spec"]["template"]
    (proxy,) = found["spec"]["containers"]
    return found, proxy


def said(world):
    """Return the value of each option in the objects."""
    requests = template(world)[1]["resources"]["requests"]
    return {
        "gateway_replicas": find(world, "Deployment")["spec"]["replicas"],
        "gateway_service_type": find(world, "Service")["spec"]["type"],
        "gateway_cpu": requests["cpu"],
        "gateway_memory": requests["memory"],
    }


@cases(
    ("option", "given", "changed"),
    replicas=("gateway_replicas", 4, "deployments"),
    type=("gateway_service_type", "NodePort", "services"),
    cpu=("gateway_cpu", "250m", "deployments"),
    memory=("gateway_memory", "1Gi", "deployments"),
)
def test_option_changes_one_object_and_leaves_the_routes_alone(world, option, given, changed):
    world.run()
    before = said(world)
    assert before == {
        "gateway_replicas": 2,
        "gateway_service_type": "LoadBalancer",
        "gateway_cpu": "100m",
        "gateway_memory": "128Mi",
    }
    world.fake.writes.clear()
    world.config[option] = given
    world.run()
    assert said(world) == {**before, option: given}
    assert world.fake.writes == [f"patch {changed} {NAME}"]
    assert len(world.routes()) == 1


def test_budget_never_keeps_the_last_pod(world):
    world.run()
    budget = find(world, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    world.config["gateway_replicas"] = 1
    world.run()
    assert find(world, "PodDisruptionBudget") is None
    world.config["gateway_replicas"] = 2
    world.run()
    assert find(world, "PodDisruptionBudget") is not None


def test_all_of_it_goes_where_another_gateway_is_named_whatever_its_options(world):
    world.run()
    assert [kind for kind in OBJECTS if find(world, kind)] == list(OBJECTS)
    world.config = {"gateway_replicas": 5, "gateway_service_type": "NodePort"}
    assert isinstance(world.status(), testing.ActiveStatus)
    assert [kind for kind in OBJECTS if find(world, kind)] == []
    assert len(world.routes()) == 1


def test_without_options_the_model_gets_a_gateway_of_its_own_that_serves_every_host(world):
    world.base = {}
    world.related.append(testing.Relation("gateway-info", remote_app_name="kserve-controller"))
    status = world.status()
    assert f"gateway kf/{NAME} is not ready" in status.message
    assert world.related[-1].local_app_data["gateway_up"] == "false"
    selector = world.gateway()["spec"]["selector"]
    assert selector == OWN_LABELS
    assert selector.items() <= template(world)[0]["metadata"]["labels"].items()
    assert {host for one in world.gateway()["spec"]["servers"] for host in one["hosts"]} == {"*"}
    world.get_ready(NAME)
    assert f"1 route served by kf/{NAME}" in world.status().message
    assert [each["spec"]["exportTo"] for each in world.all("VirtualService")] == [["."]]
    assert world.related[-1].local_app_data == {
        "gateway_name": "kubeflow-gateway",
        "gateway_namespace": "kf",
        "gateway_up": "true",
    }


def test_account_of_another_owner_is_named_and_nothing_is_served(world):
    kind, name, namespace = ACCOUNT
    world.fake.put(kind, name, namespace, api_version="v1")
    (row,) = diagnose_ingress(world, "status")
    taken = f"another tool has ServiceAccount {namespace}/{name}"
    assert row.seen == f"{taken}; set gateway-service, or rename or delete it"
    assert row.next == "juju config mesh-2 gateway-service=NAMESPACE/NAME"
    assert (find(world, "Deployment"), world.gateway(), world.routes()) == (None, None, [])


def test_workload_reads_the_secrets_of_its_namespace_and_needs_no_token_for_it(world):
    world.hook()
    account = {"kind": "ServiceAccount", "name": ACCOUNT[1], "namespace": "kf"}
    assert world.fake.find(*ACCOUNT)["automountServiceAccountToken"] is False
    reading = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}
    assert find(world, "Role")["rules"] == [reading]
    assert find(world, "RoleBinding")["subjects"] == [account]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME}
    assert find(world, "RoleBinding")["roleRef"] == role


def test_pods_are_what_istiod_makes_of_them_and_are_replaced_one_by_one(world):
    world.hook()
    spec = find(world, "Deployment")["spec"]
    rolling = {"maxSurge": 1, "maxUnavailable": 0}
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert spec["revisionHistoryLimit"] == 1
    pod, proxy = template(world)
    # Without app.kubernetes.io/name, by which Juju would count the pods as units.
    assert pod["metadata"] == {
        "labels": {**OWN_LABELS, "sidecar.istio.io/inject": "true"},
        "annotations": {"inject.istio.io/templates": "gateway"},
    }
    apart = ("containers", "topologySpreadConstraints")
    assert {key: value for key, value in pod["spec"].items() if key not in apart} == {
        "serviceAccountName": ACCOUNT[1],
        "enableServiceLinks": False,
        # Longer than half a minute: Istio gives its connections time to end.
        "terminationGracePeriodSeconds": 60,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    }
    fake_cluster.install_istio(world.fake, revision="canary")
    world.config["revision"] = "canary"
    world.hook()
    assert template(world)[0]["metadata"]["labels"]["istio.io/rev"] == "canary"
    image = proxy["name"], proxy["image"], proxy["imagePullPolicy"]
    assert image == ("istio-proxy", "auto", "IfNotPresent"), "asks the registry at each start"
    assert proxy["securityContext"] == {
        **dict.fromkeys(("allowPrivilegeEscalation", "privileged"), False),
        **dict.fromkeys(("readOnlyRootFilesystem", "runAsNonRoot"), True),
        **dict.fromkeys(("runAsUser", "runAsGroup"), 1337),
        "capabilities": {"drop": ["ALL"]},
    }


def test_ports_of_the_service_are_those_that_the_pods_let_in(world):
    world.hook()
    entry = {port["containerPort"] for port in template(world)[1]["ports"]}
    ports = find(world, "Service")["spec"]["ports"]
    # By these names istiod takes what they serve.
    assert [port.pop("name") for port in ports] == ["tcp-status", "http2", "https"]
    assert {port.pop("protocol") for port in ports} == {"TCP"}
    service = {port["port"]: port["targetPort"] for port in ports}
    (closed,) = (each["spec"] for each in world.all("AuthorizationPolicy"))
    rule, of_tcp = closed["rules"]
    (target,) = rule["to"]
    assert service.pop(15021) == 15021
    assert {*service} == {80, 443}
    assert {*service.values()} == entry
    assert closed["action"] == "DENY"
    assert {*map(int, target["operation"]["notPorts"])} == entry
    # In a rule for TCP istiod leaves methods out (tests/functional/test_guard_tenants.py).
    assert of_tcp == {"to": [{"operation": {"methods": ["NO-METHOD"]}}]}


def test_every_selector_is_that_of_the_pods_which_spread_over_nodes(world):
    world.hook()
    pod, _ = template(world)
    (spread,) = pod["spec"]["topologySpreadConstraints"]
    assert (spread["maxSkew"], spread["topologyKey"]) == (1, "kubernetes.io/hostname")
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    (policy,) = world.all("AuthorizationPolicy")
    for selector in (
        find(world, "Service")["spec"]["selector"],
        find(world, "Deployment")["spec"]["selector"]["matchLabels"],
        find(world, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        policy["spec"]["selector"]["matchLabels"],
        spread["labelSelector"]["matchLabels"],
    ):
        assert selector.items() >= OWN_LABELS.items()
        assert selector.items() <= pod["metadata"]["labels"].items()


OLD, OURS, YOUNG = "2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z", "2027-01-01T00:00:00Z"
BY_POD = {"sidecar.istio.io/inject": "true"}
"""A label that the gateway's pods have and its selector has not."""


@cases(
    ("created", "server", "labels", "is_named"),
    older=(OLD, {}, OWN_LABELS, True),
    younger=(YOUNG, {}, OWN_LABELS, False),
    of_the_same_second_with_a_later_name=(OURS, {}, OWN_LABELS, False),
    younger_at_an_address=(
        YOUNG, {"bind": "10.1.2.3", "port": {"number": 443, "protocol": "Redis"}}, {}, True,
    ),
    by_a_label_of_pods=(OLD, {"port": {"number": 8080, "protocol": "Mongo"}}, BY_POD, True),
    of_another_workload=(OLD, {}, {**OWN_LABELS, "x": "y"}, False),
    of_other_pods=(OLD, {}, {"x": "y"}, False),
    at_a_port_that_is_denied=(OLD, {"port": {"number": 9000, "protocol": "TCP"}}, {}, False),
    at_the_pods_port=(OLD, {"port": {"number": 8443, "protocol": "MySQL"}}, {}, True),
    of_http=(OLD, {"port": {"number": 80, "protocol": "http2"}}, {}, False),
    that_is_odd=(OLD, {"port": "80"}, {}, False),
)  # fmt: skip
def test_gateway_that_takes_a_port_for_tcp_is_named(world, created, server, labels, is_named):
    world.run()
    world.fake.put("Pod", "gateway-w", "kf", labels=OWN_LABELS)
    world.fake.put("Pod", "gateway-x", "kf", labels={**OWN_LABELS, **BY_POD})
    world.fake.put("Pod", "web-0", "kf", labels={"x": "y"})
    world.gateway()["metadata"]["creationTimestamp"] = OURS
    world.fake.namespace("mesh-2")
    ingress_world.neighbour(world.fake)
    ports = ({"number": 9001, "protocol": "TCP"}, {"number": 80, "protocol": "TCP"})
    first, second = ({"port": port, "hosts": ["*"]} for port in ports)
    servers = [first, {**second, **server}]
    spec = {"selector": labels, "servers": servers}
    taking = world.fake.put("Gateway", "tcp", "mesh-2", spec=spec)
    taking["metadata"]["creationTimestamp"] = created
    shown = world.status().message[:100]
    taken = f"takes port {servers[1]['port']['number']} for TCP" if is_named else "takes port"
    assert (f"Gateway mesh-2/tcp {taken}" in shown) == is_named
    assert ("run: juju run mesh-2/leader diagnose" in shown) == is_named


def test_of_gateways_of_one_second_the_name_decides_and_not_the_namespace(world):
    world.fake.namespace("mesh-2")
    tcp = {"port": {"number": 80, "protocol": "TCP"}, "hosts": ["*"]}
    spec = {"selector": OWN_LABELS, "servers": [tcp]}
    world.fake.put("Gateway", "a", "mesh-2", spec=spec)["metadata"]["creationTimestamp"] = OURS
    # Before this charm has a Gateway, every other one is older.
    assert "Gateway mesh-2/a takes port" in world.hook().unit_status.message
    world.gateway()["metadata"]["creationTimestamp"] = OURS
    assert "Gateway mesh-2/a takes port" in world.status().message
    row, *_ = diagnose_ingress(world, "status")
    assert row.next == "kubectl -n mesh-2 delete gateways.networking.istio.io a"
