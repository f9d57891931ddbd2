"""The rendered admission objects: valid whatever is configured, and safe from what is quoted."""

import pytest

from integrator_contract import names, namespaces, selectors
from istio_integrator.admission import webhook
from istio_integrator.kube import manifests, owners


def selected(kinds=("profiles", "labelled"), owner=""):
    served = namespaces.Served(
        model="m", mesh_namespace="istio-system", owner=owner, kinds=frozenset(kinds)
    )
    return webhook.namespace_selectors(served)


@pytest.mark.parametrize("application", ["a", "x" * 63, "a-" * 40 + "b"])
def test_names_of_the_webhooks_objects_are_dns_labels(application):
    name = owners.object_name(application, "admission")

    assert len(name) <= 63
    assert selectors.is_value(name)
    assert owners.object_name(application, "admission-tls") != name


def configured(kinds=("profiles", "labelled")):
    """What API servers are told of the webhook."""
    (found,) = manifests.render(
        "admission-webhook-configuration",
        webhook.ConfigurationContext(
            name="0-x",
            service="app-admission",
            model="m",
            ca_bundle="Yg==",
            namespace_selectors=selected(kinds),
        ),
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
        for kind, _ in selected()
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
        webhook.WorkloadContext(
            name="app-admission",
            secret="app-admission-tls",
            image="x.invalid/rock:1",
            image_pull_secrets=[{"name": "pull"}],
            pod_labels={"a": "b"},
            settings="{}",
            annotations={"seen": "text"},
            log_level="info",
        ),
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


def test_the_webhook_is_outside_of_the_mesh_and_has_what_it_reads(workload):
    template = workload["Deployment"]["spec"]["template"]
    pod = template["spec"]
    (server,) = pod["containers"]
    options = dict(word.removeprefix("--").split("=", 1) for word in server["command"][2:])
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounts = {each["mountPath"]: each for each in server["volumeMounts"]}

    assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert (server["image"], pod["imagePullSecrets"]) == ("x.invalid/rock:1", [{"name": "pull"}])
    assert server["imagePullPolicy"] == "IfNotPresent"
    # Its Services' addresses are nothing that it looks for in its environment.
    assert pod["enableServiceLinks"] is False
    settings, files = mounts["/etc/sidecar-lifecycle/settings"], mounts[options["tls-dir"]]
    assert settings["readOnly"] is files["readOnly"] is True
    assert volumes[settings["name"]]["configMap"] == {"name": "app-admission"}
    assert workload["ConfigMap"]["metadata"]["name"] == "app-admission"
    for option, name in (("settings", "settings.json"), ("log-level-file", "log-level")):
        assert options[option] == f"{settings['mountPath']}/{name}"
        assert name in workload["ConfigMap"]["data"]
    assert workload["ConfigMap"]["metadata"]["annotations"] == {"seen": "text"}
    secret = volumes[files["name"]]["secret"]
    assert secret["secretName"] == "app-admission-tls"
    assert [(each["key"], each["path"]) for each in secret["items"]] == [
        ("tls.crt", "tls.crt"),
        ("tls.key", "tls.key"),
    ]
    # The group may read the key, and the process is of that group.
    assert secret["defaultMode"] == 0o440
    owner = pod["securityContext"]
    assert owner["fsGroup"] == owner["runAsGroup"] == owner["runAsUser"] != 0


def test_the_webhook_is_asked_how_it_is_where_it_answers_that(workload):
    (server,) = workload["Deployment"]["spec"]["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in server["ports"]}
    options = dict(word.removeprefix("--").split("=", 1) for word in server["command"][2:])

    assert options["listen"] == f":{ports['https']}"
    assert options["health"] == f":{ports['health']}"
    probes = {name: server[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["httpGet"] for name, probe in probes.items()} == {
        "startup": {"path": "/livez", "port": "health"},
        "liveness": {"path": "/livez", "port": "health"},
        "readiness": {"path": "/readyz", "port": "health"},
    }
    # A minute to start; a server that hangs is left out within seconds, and started anew later.
    assert probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"] == 60
    assert probes["readiness"]["periodSeconds"] < probes["liveness"]["periodSeconds"]
    for name in ("liveness", "readiness"):
        assert 1 < probes[name]["timeoutSeconds"] <= probes[name]["periodSeconds"]
    assert {*server["resources"]["requests"]} == {"cpu", "memory"}
    assert {*server["resources"]["limits"]} == {"memory"}
