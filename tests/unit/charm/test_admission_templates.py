"""The rendered admission objects: valid whatever is configured, and safe from what is quoted."""

import pytest

from integrator_contract import names, namespaces, selectors
from istio_integrator.admission import webhook
from istio_integrator.kube import manifests, owners


def selected(kinds=("profiles", "labelled"), owner=""):
    return namespaces.Served(
        model="m", mesh_namespace="istio-system", owner=owner, kinds=frozenset(kinds)
    )


@pytest.mark.parametrize("application", ["a", "x" * 63, "a-" * 40 + "b"])
def test_names_of_the_webhooks_objects_are_dns_labels(application):
    name = owners.object_name(application, "admission")

    assert len(name) <= 63
    assert selectors.is_value(name)
    assert owners.object_name(application, "admission-tls") != name


@pytest.mark.parametrize("application", ["a", "zz", "0", "istio-sidecar", "x" * 60])
@pytest.mark.parametrize("model", ["istio-system", "zz", "a", "m" * 63])
def test_the_configuration_sorts_before_every_injector(application, model):
    name = webhook.configuration_name(names.owner(model, application))

    assert name < "istio-revision-tag-default"
    assert name < "istio-sidecar-injector"
    assert len(name) < 250


def configured(kinds=("profiles", "labelled")):
    """What API servers are told of the webhook."""
    (found,) = manifests.render(
        "admission-webhook-configuration",
        {
            "name": "0-x",
            "service": "app-admission",
            "model": "m",
            "ca_bundle": "Yg==",
            "served": selected(kinds),
        },
    )
    return found


def test_the_webhook_asks_at_creation_only_and_fails_open():
    found = configured(["labelled"])

    assert found["metadata"]["name"] == "0-x"
    assert [hook["name"].split(".")[0] for hook in found["webhooks"]] == ["model", "labelled"]
    for hook in found["webhooks"]:
        assert [rule["operations"] for rule in hook["rules"]] == [["CREATE"]]
        assert (hook["failurePolicy"], hook["timeoutSeconds"]) == ("Ignore", 3)
        # A server changes nothing but the pod that it is shown, also at a dry run.
        assert (hook["sideEffects"], hook["admissionReviewVersions"]) == ("None", ["v1"])


def test_every_kind_of_namespace_is_asked_for_by_a_path_of_its_own(workload):
    (port,) = workload["Service"]["spec"]["ports"]
    hooks = configured()["webhooks"]

    assert [hook["clientConfig"] for hook in hooks] == [
        {
            "caBundle": "Yg==",
            "service": {
                "name": workload["Service"]["metadata"]["name"],
                "namespace": "m",
                "path": f"/mutate/{kind}",
                "port": port["port"],
            },
        }
        for kind, _ in selected().as_selectors()
    ]


def test_the_webhook_is_reinvoked_whatever_an_injector_made_of_the_pod():
    for hook in configured()["webhooks"]:
        assert hook["reinvocationPolicy"] == "IfNeeded"
        # It is asked a second time only where it was asked before the injection, too.
        assert "matchConditions" not in hook
        keys = {each["key"] for each in hook["objectSelector"]["matchExpressions"]}
        assert keys == {names.MESH_PROBE, names.COMPONENT}
        assert hook["rules"] == [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
                "operations": ["CREATE"],
                "scope": "Namespaced",
            }
        ]


@pytest.fixture(scope="module")
def workload():
    """The webhook's objects by their kind."""
    found = manifests.render(
        "admission-webhook",
        {
            "name": "app-admission",
            "secret": "app-admission-tls",
            "image": "x.invalid/rock:1",
            "image_pull_secrets": [{"name": "pull"}],
            "pod_labels": {"a": "b"},
            "settings": "{}",
            "annotations": {"seen": "text"},
            "log_level": "info",
        },
    )
    return {each["kind"]: each for each in found}


def test_the_webhook_goes_on_through_drains_and_updates(workload):
    budget, deployment = workload["PodDisruptionBudget"]["spec"], workload["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    ours = {"matchLabels": {"a": "b"}}

    assert (budget["selector"], deployment["selector"]) == (ours, ours)
    assert deployment["template"]["metadata"]["labels"].items() >= ours["matchLabels"].items()
    # A server that never gets ready may not hold up a drain.
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["type"] == "RollingUpdate"
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert deployment["revisionHistoryLimit"] == 1
    (spread,) = pod["topologySpreadConstraints"]
    assert (spread["maxSkew"], spread["topologyKey"]) == (1, "kubernetes.io/hostname")
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert spread["labelSelector"] == ours


def test_the_webhook_is_reached_at_its_own_ports_and_no_others(workload):
    pod = workload["Deployment"]["spec"]["template"]
    ours = pod["metadata"]["labels"].items()
    ports = {each["name"] for each in pod["spec"]["containers"][0]["ports"]}
    (port,) = workload["Service"]["spec"]["ports"]
    closed = workload["NetworkPolicy"]["spec"]

    assert {each["metadata"]["name"] for each in workload.values()} == {"app-admission"}
    assert workload["Service"]["spec"]["selector"].items() <= ours
    assert (port["targetPort"], port["port"]) == ("https", 443)
    assert closed["podSelector"]["matchLabels"].items() <= ours
    assert [{each["port"] for each in rule["ports"]} for rule in closed["ingress"]] == [ports]
    assert {*closed["policyTypes"]} == {"Ingress", "Egress"}
    assert "egress" not in closed
