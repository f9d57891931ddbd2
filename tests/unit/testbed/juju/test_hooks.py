import json


def test_first_deploy_runs_hooks_in_jujus_order(settled):
    assert settled.hooks("tiny/0")[:5] == [
        "install",
        "cluster-relation-created",
        "leader-elected",
        "config-changed",
        "start",
    ]


def test_install_sees_no_relation_though_a_peer_relation_exists(settled):
    peers = {seen["hook"]: seen["peers"] for seen in settled.saw("tiny/0")}
    assert peers["install"] == 0
    assert peers["cluster-relation-created"] == 1


def test_hook_environment_has_neither_home_nor_the_pods_variables(settled):
    results = settled.juju.run("tiny/0", "inspect")["results"]
    environment = json.loads(results["environment"])
    assert not {"HOME", "POD_ONLY", "JUJU_K8S_MODEL"} & set(environment)
    assert environment["KUBERNETES_SERVICE_HOST"] == "192.0.2.1"
    assert environment["JUJU_HOOK_NAME"] == ""
    assert environment["JUJU_DISPATCH_PATH"] == "actions/inspect"
    assert results["folder"] == environment["JUJU_CHARM_DIR"]
    assert json.loads(results["config"]) == {"level": 1}


def test_config_change_sets_the_status(model, plain):
    model.juju.deploy(plain)
    model.start_pod("plain/0")
    model.wait_for_hook("plain/0", "start")
    model.juju.config("plain", {"script": 'status-set active "as configured"'})
    model.wait_for_hook("plain/0", "config-changed", 2)
    status = model.wait_idle("plain")["applications"]["plain"]["application-status"]
    assert status["message"] == "as configured"


def test_failed_hook_drops_its_writes_and_is_retried_until_it_passes(model, plain):
    writing = """
[ "$JUJU_HOOK_NAME" != cluster-relation-created ] ||
  { relation-set -r "$(relation-ids cluster)" by-the-hook=written; %s; }
"""
    model.juju.deploy(plain, config={"script": writing % "exit 1"})
    model.start_pod("plain/0")
    model.wait_for_hook("plain/0", "cluster-relation-created", 2)
    status = model.juju.status()["applications"]["plain"]["units"]["plain/0"]
    bag = model.juju.show_unit("plain/0")["relation-info"][0]["local-unit"]["data"]
    assert {"egress-subnets", "ingress-address", "private-address"} == set(bag)
    assert set(model.hooks("plain/0")) == {"install", "cluster-relation-created"}
    if status["juju-status"]["current"] == "idle":
        assert status["workload-status"]["current"] == "error"
    model.juju.config("plain", {"script": writing % "true"})
    model.wait_idle("plain", "unknown")
    bag = model.juju.show_unit("plain/0")["relation-info"][0]["local-unit"]["data"]
    assert bag["by-the-hook"] == "written"
