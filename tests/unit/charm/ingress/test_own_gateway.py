"""The gateway workload of the model's own, as options make it, on a small API server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops import testing

from istio_integrator.config import config
from istio_integrator.ingress.gateways import own
from istio_integrator.kube import manifests
from tests.unit.charm import ingress_world
from tests.unit.charm.ingress_world import OURS, OWN, World, auth, route

NAME = f"{OURS}-gateway"
OBJECTS = ("Role", "RoleBinding", "Service", "Deployment", "PodDisruptionBudget")


@pytest.fixture
def world(fake, monkeypatch):
    ingress_world.connect(fake, monkeypatch)
    return World(fake, route(), auth(), **OWN)


def find(world, kind):
    return world.fake.find(kind, NAME, "kubeflow")


def resources(world):
    (proxy,) = find(world, "Deployment")["spec"]["template"]["spec"]["containers"]
    return proxy["resources"]


def test_gateway_has_istios_own_defaults_and_two_pods_of_which_one_may_go(world):
    world.run()
    assert resources(world) == {"requests": {"cpu": "100m", "memory": "128Mi"}}
    assert find(world, "Deployment")["spec"]["replicas"] == 2
    assert find(world, "Service")["spec"]["type"] == "LoadBalancer"
    assert find(world, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_options_are_what_the_objects_say(world):
    world.config |= {
        "gateway_replicas": 3,
        "gateway_service_type": "ClusterIP",
        "gateway_cpu": "250m",
        "gateway_memory": "1024Mi",
    }
    world.run()
    assert find(world, "Deployment")["spec"]["replicas"] == 3
    assert find(world, "Service")["spec"]["type"] == "ClusterIP"
    assert resources(world) == {"requests": {"cpu": "250m", "memory": "1Gi"}}


def test_option_changes_one_object_and_leaves_the_routes_alone(world):
    world.run()
    for option, value, changed in (
        ("gateway_service_type", "NodePort", "services"),
        ("gateway_cpu", "1", "deployments"),
        ("gateway_replicas", 4, "deployments"),
    ):
        world.fake.writes.clear()
        world.config[option] = value
        world.run()
        assert world.fake.writes == [f"patch {changed} {NAME}"]
    assert len(world.routes()) == 1


def test_one_pod_has_no_budget_and_more_have_one_again(world):
    world.run()
    world.config["gateway_replicas"] = 1
    world.run()
    assert find(world, "PodDisruptionBudget") is None
    world.config["gateway_replicas"] = 2
    world.run()
    assert find(world, "PodDisruptionBudget") is not None


@pytest.mark.parametrize(
    ("option", "value", "right"),
    [
        ("gateway_replicas", 0, "greater than or equal to 1"),
        ("gateway_service_type", "Headless", "'LoadBalancer', 'NodePort' or 'ClusterIP'"),
        ("gateway_cpu", "many", "such as 500m or 2, from 1m to 64"),
        ("gateway_memory", "128", "such as 512Mi or 1Gi"),
    ],
)
def test_wrong_option_blocks_the_unit_and_changes_nothing(world, option, value, right):
    world.run()
    world.fake.writes.clear()
    world.config[option] = value
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert f"{option.replace('_', '-')}='{value}'" in status.message
    assert right in status.message
    assert world.fake.writes == []


def test_at_a_named_gateway_the_options_change_nothing(world):
    world.config = {}
    world.run()
    assert [kind for kind in OBJECTS if find(world, kind)] == []
    world.fake.writes.clear()
    world.config = {
        "gateway_replicas": 5,
        "gateway_service_type": "NodePort",
        "gateway_cpu": "2",
        "gateway_memory": "256Mi",
    }
    status = world.status()
    assert isinstance(status, testing.ActiveStatus), status
    assert world.fake.writes == []
    assert [kind for kind in OBJECTS if find(world, kind)] == []


def test_all_of_it_goes_where_another_gateway_is_named(world):
    world.run()
    assert [kind for kind in OBJECTS if find(world, kind)] == list(OBJECTS)
    world.config = {}
    world.run()
    assert [kind for kind in OBJECTS if find(world, kind)] == []
    assert len(world.routes()) == 1


ACCOUNT = ("ServiceAccount", "istio-ingressgateway-workload-service-account", "kubeflow")


def test_without_options_the_model_gets_a_gateway_of_its_own_that_serves_every_host(world):
    world.base = {}
    world.related.append(testing.Relation("gateway-info", remote_app_name="kserve-controller"))
    status = world.status()
    assert f"gateway kubeflow/{NAME} is not ready" in status.message
    assert world.related[-1].local_app_data["gateway_up"] == "false"
    template = find(world, "Deployment")["spec"]["template"]
    assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "true"
    assert "app.kubernetes.io/name" not in template["metadata"]["labels"]
    assert template["spec"]["serviceAccountName"] == ACCOUNT[1]
    assert world.fake.find(*ACCOUNT) is not None
    selector = world.gateway()["spec"]["selector"]
    assert selector.items() <= template["metadata"]["labels"].items()
    assert selector["istio-integrator.charmhub.io/owner"] == f"kubeflow.{OURS}"
    assert {host for one in world.gateway()["spec"]["servers"] for host in one["hosts"]} == {"*"}
    world.get_ready(NAME)
    assert f"1 route served by kubeflow/{NAME}" in world.status().message
    assert world.related[-1].local_app_data == {
        "gateway_name": "kubeflow-gateway",
        "gateway_namespace": "kubeflow",
        "gateway_up": "true",
    }


def test_account_of_another_owner_is_named_and_nothing_is_served(world):
    kind, name, namespace = ACCOUNT
    metadata = {"name": name, "namespace": namespace}
    world.fake.add({"apiVersion": "v1", "kind": kind, "metadata": metadata})
    status = world.status()
    assert isinstance(status, testing.BlockedStatus)
    assert f"ServiceAccount {namespace}/{name} exists and was not made by this charm" in (
        status.message
    )
    assert "gateway-service" in status.message
    assert (find(world, "Deployment"), world.gateway(), world.routes()) == (None, None, [])


def rendered(**options):
    """The objects of the workload by their kind."""
    context = {
        "name": "gateway",
        "account": "account",
        "model": "kubeflow",
        "pod_labels": {"istio": "gateway"},
        "inject_labels": {"sidecar.istio.io/inject": "true"},
        "options": config.Config(**options),
    }
    return {obj["kind"]: obj for obj in manifests.render(own.FOLDER, context)}


def test_workload_reads_the_secrets_of_its_namespace_and_needs_no_token_for_it():
    objects = rendered()
    account = {"kind": "ServiceAccount", "name": "account", "namespace": "kubeflow"}
    reading = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}

    assert objects["ServiceAccount"]["metadata"]["name"] == account["name"]
    assert objects["ServiceAccount"]["automountServiceAccountToken"] is False
    assert objects["Role"]["rules"] == [reading]
    assert objects["RoleBinding"]["subjects"] == [account]
    assert objects["RoleBinding"]["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": objects["Role"]["metadata"]["name"],
    }
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["name"]


def test_pods_are_what_istiod_makes_of_them_and_no_more_than_that():
    template = rendered()["Deployment"]["spec"]["template"]
    (proxy,) = template["spec"]["containers"]

    assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "true"
    assert template["metadata"]["annotations"] == {"inject.istio.io/templates": "gateway"}
    assert (proxy["name"], proxy["image"]) == ("istio-proxy", "auto")
    # Else the registry is asked at each start.
    assert proxy["imagePullPolicy"] == "IfNotPresent"
    assert template["spec"]["enableServiceLinks"] is False
    assert template["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    rights = proxy["securityContext"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert rights["allowPrivilegeEscalation"] is rights["privileged"] is False
    assert rights["readOnlyRootFilesystem"] is rights["runAsNonRoot"] is True
    assert rights["runAsUser"] == rights["runAsGroup"] != 0


def test_pods_are_replaced_one_after_the_other_and_end_in_their_own_time():
    spec = rendered()["Deployment"]["spec"]

    assert spec["strategy"]["type"] == "RollingUpdate"
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert spec["revisionHistoryLimit"] == 1
    # Longer than the half minute that every pod has: Istio gives its connections time to end.
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > 30


def test_ports_of_the_service_are_those_that_the_pods_let_in():
    objects = rendered()
    (proxy,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    entry = {port["containerPort"] for port in proxy["ports"]}
    service = {port["port"]: port["targetPort"] for port in objects["Service"]["spec"]["ports"]}
    closed = objects["AuthorizationPolicy"]["spec"]
    (rule,) = closed["rules"]
    (target,) = rule["to"]

    assert service.pop(15021) == 15021
    assert {*service} == {80, 443}
    assert {*service.values()} == entry
    assert closed["action"] == "DENY"
    assert {*map(int, target["operation"]["notPorts"])} == entry


@given(st.integers(1, 100))
def test_budget_never_keeps_the_last_pod_and_pods_spread_where_there_are_several(replicas):
    objects = rendered(gateway_replicas=replicas)
    budget = objects.get("PodDisruptionBudget")
    assert (budget is not None) == (replicas > 1)
    pod = objects["Deployment"]["spec"]["template"]
    selectors = [
        objects["Service"]["spec"]["selector"],
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        objects["AuthorizationPolicy"]["spec"]["selector"]["matchLabels"],
    ]
    if budget:
        assert 0 < budget["spec"]["maxUnavailable"] < replicas
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        selectors.append(budget["spec"]["selector"]["matchLabels"])
    for spread in pod["spec"]["topologySpreadConstraints"]:
        assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
        assert (spread["maxSkew"], spread["topologyKey"]) == (1, "kubernetes.io/hostname")
        selectors.append(spread["labelSelector"]["matchLabels"])
    assert pod["spec"]["topologySpreadConstraints"]
    assert all(chosen.items() <= pod["metadata"]["labels"].items() for chosen in selectors)
    assert all(selectors)
