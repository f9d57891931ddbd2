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
    assert json.loads(results["config"]) == {"fail": "", "slow": "", "level": 1}


def test_config_change_runs_one_config_changed_and_sets_the_status(model, tiny):
    model.juju.deploy(tiny)
    model.start_pod("tiny/0")
    model.wait_idle("tiny")
    model.juju.config("tiny", {"level": 7})
    model.wait_for_hook("tiny/0", "config-changed", 2)
    model.juju.wait(
        lambda s: s["applications"]["tiny"]["application-status"].get("message") == "level 7", 20
    )
    assert model.hooks("tiny/0").count("config-changed") == 2


def test_failed_hook_drops_its_writes_and_is_retried_until_it_passes(model, tiny):
    model.juju.deploy(tiny, config={"fail": "cluster-relation-created"})
    model.start_pod("tiny/0")
    model.wait_for_hook("tiny/0", "cluster-relation-created", 2)
    status = model.juju.status()["applications"]["tiny"]["units"]["tiny/0"]
    bag = model.juju.show_unit("tiny/0")["relation-info"][0]["local-unit"]["data"]
    assert "unit-cluster-relation-created" not in bag
    assert {"egress-subnets", "ingress-address", "private-address"} == set(bag)
    assert set(model.hooks("tiny/0")) == {"install", "cluster-relation-created"}
    if status["juju-status"]["current"] == "idle":
        assert status["workload-status"]["current"] == "error"
    model.juju.config("tiny", {"fail": ""})
    model.wait_idle("tiny")
    bag = model.juju.show_unit("tiny/0")["relation-info"][0]["local-unit"]["data"]
    assert bag["unit-cluster-relation-created"] == "written"
