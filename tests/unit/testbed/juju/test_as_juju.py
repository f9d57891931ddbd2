"""What a real Juju does: 4.0.15 as seen on the testbed's node, and the source of 3.6 and 4.0.

Each test names the place in juju/juju, or says that the behaviour was seen.
"""

import pathlib
import sys

import pytest

from testbed.juju import display
from testbed.juju.agent import initialise, main
from testbed.juju.controller import objects, operations, view
from testbed.juju.controller.state import Model, Status, Unit
from tests.unit.cases import cases
from tests.unit.testbed.juju.conftest import Controller


@pytest.fixture
def application(plain):
    return operations.deploy(
        Model("kubeflow", "model-uuid", "controller-uuid"),
        plain,
        name="",
        config={},
        resources={},
        trust=False,
        units=1,
    )


def pod_of(source, *, at=0):
    """A unit's pod in which one container mounts a volume of this source."""
    containers = [{"name": name, "volumeMounts": []} for name in ("charm", "workload")]
    for container in containers:
        container["volumeMounts"].append({"name": "charm-data", "mountPath": "/charm/bin"})
    containers[at]["volumeMounts"].append({"name": "extra", "mountPath": "/extra"})
    volumes = [{"name": "charm-data", "emptyDir": {}}, {"name": "extra", **source}]
    return {"spec": {"containers": containers, "volumes": volumes}}


PODINFO = {"downwardAPI": {"items": []}}
"""What istio-proxy mounts as `istio-podinfo`."""


@pytest.fixture
def charm_init(model, plain, monkeypatch, capsys):
    """Run the charm-init container of a unit's pod; it returns its exit code and what it says."""
    model.juju.deploy(plain)
    identity = model.identity("plain/0")
    values = {
        "CONTROLLER_CA_CERT": "",
        "CONTROLLER_ADDRESSES": Controller.address,
        "MODEL": identity["model"],
        "APPLICATION": identity["application"],
        "APPLICATION_PASSWORD": identity["password"],
        "POD_NAME": "plain-0",
        "POD_UUID": "0",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"JUJU_K8S_{name}", value)
    monkeypatch.setattr(
        initialise, "Controller", lambda _address, _ca, shown: Controller(model, shown)
    )
    for program in ("PEBBLE", "JUJUC"):
        monkeypatch.setattr(initialise, program, pathlib.Path(sys.executable))
    folders = ("containeragent-pebble-dir", "data-dir", "bin-dir")
    arguments = [word for name in folders for word in (f"--{name}", str(model.folder))]

    def run():
        code = main.main(["init", "--charm-modified-version", "0", *arguments])
        return code, capsys.readouterr().err

    return run


@cases(
    ("pod", "is_known"),
    account_s_secret=(pod_of({"secret": {"secretName": "plain-token-x"}}), True),
    controller_s_secret=(pod_of({"secret": {"secretName": "controller-x"}}), True),
    projected=(pod_of({"projected": {}}), True),
    config_map=(pod_of({"configMap": {"name": "a"}}), True),
    host_path=(pod_of({"hostPath": {"path": "/"}}), True),
    empty_dir=(pod_of({"emptyDir": {}}), True),
    claim=(pod_of({"persistentVolumeClaim": {"claimName": "a"}}), True),
    second_container_s_volume=(pod_of(PODINFO, at=1), True),
    proxy_s_volume=(pod_of(PODINFO), False),
    another_secret=(pod_of({"secret": {"secretName": "istio-ca"}}), False),
    csi=(pod_of({"csi": {"driver": "a"}}), False),
)
def test_one_pod_whose_first_container_mounts_an_unknown_volume_stops_its_whole_application(
    model, charm_init, pod, is_known
):
    """internal/provider/kubernetes/application/application.go, Units; storage.FilesystemInfo."""
    model.pods = [pod_of({"emptyDir": {}}), pod]
    code, said = charm_init()
    assert code == (0 if is_known else 1)
    assert ("finding filesystem info for extra: volume extra not supported" in said) is (code == 1)


def test_charm_init_ends_with_what_the_controller_refuses(charm_init, monkeypatch):
    """cmd/containeragent/initialize/command.go, IsFatalError: the kubelet starts it again."""
    monkeypatch.setenv("JUJU_K8S_APPLICATION_PASSWORD", "wrong")
    code, said = charm_init()
    assert code == 1
    assert "ERROR invalid entity name or password" in said


@pytest.mark.parametrize(
    ("changes", "workload", "agent"),
    [
        pytest.param({}, "unknown", "lost", id="gone"),
        pytest.param({"seen": float("inf")}, "active", "idle", id="connected"),
        pytest.param({"seen": 0.0}, "active", "idle", id="never connected"),
        pytest.param({"agent": Status("error", "hook failed")}, "error", "lost", id="in error"),
        pytest.param({"workload": Status("terminated")}, "terminated", "lost", id="terminated"),
    ],
)
def test_unit_whose_agent_has_gone_is_lost(application, changes, workload, agent):
    """apiserver/common/unitstatus.go, UnitStatus."""
    unit = Unit("plain/0", seen=1.0, workload=Status("active"), agent=Status("idle"))
    for name, value in changes.items():
        setattr(unit, name, value)
    application.units["plain/0"] = unit
    shown = view._unit(application, unit)
    assert shown["workload-status"]["current"] == workload
    assert shown["juju-status"]["current"] == agent
    if workload == "unknown":
        assert shown["workload-status"]["message"].startswith("agent lost, see 'juju show-status")


def test_change_of_options_or_trust_runs_config_changed_twice_and_a_reset_not_at_all(model, plain):
    """Seen with 4.0.15."""
    model.juju.deploy(plain)
    model.start("plain/0")
    model.wait_idle("plain")
    assert model.hooks("plain/0").count("config-changed") == 1
    model.juju.config("plain", {"script": "true"})
    model.wait_for_hook("plain/0", "config-changed", 3)
    model.juju.trust("plain")
    model.wait_for_hook("plain/0", "config-changed", 5)
    model.juju.config("plain", reset=("script",))
    model.juju.model_config({"update-status-hook-interval": "100ms"})
    model.wait_for_hook("plain/0", "update-status", 2)
    assert model.hooks("plain/0").count("config-changed") == 5


def test_forced_removal_runs_no_hook(model, plain):
    """Seen with 4.0.15, of a healthy unit; 3.6 tries its hooks for a minute."""
    model.juju.deploy(plain)
    model.start("plain/0")
    model.wait_idle("plain")
    before = model.hooks("plain/0")
    model.juju.remove_application("plain", force=True)
    model.juju.wait(lambda status: status["applications"]["plain"]["life"] == "dead", 20)
    assert model.hooks("plain/0") == before


def test_account_may_little_without_trust_and_everything_with_it(application):
    """internal/provider/kubernetes/application/trust.go."""

    def rights(kind):
        built = objects.application_rbac(Model("kubeflow", "u", "c"), application)
        rules = [rule for thing in built if thing["kind"] == kind for rule in thing["rules"]]
        return {",".join(rule["resources"]): " ".join(rule["verbs"]) for rule in rules}

    assert rights("Role") == {
        "namespaces": "get list",
        "pods,services": "get list patch",
        "pods/exec": "create",
    }
    assert rights("ClusterRole") == {"namespaces": "get list"}
    application.trust = True
    assert rights("Role") == rights("ClusterRole") == {"*": "*"}


def test_hooks_have_the_variables_of_tracing_and_actions_have_numbers(model, plain, monkeypatch):
    """internal/worker/uniter/runner/context/context.go, HookVars; action IDs as seen."""
    model.juju.deploy(plain, config={"script": '[ -z "$JUJU_ACTION_NAME" ] || env'})
    model.start("plain/0")
    model.wait_idle("plain")
    for name in ("HOME", "JUJU_K8S_MODEL"):
        monkeypatch.setenv(name, "of the pod")
    outcome = model.juju.run("plain/0", "shell", {"code": ""})
    environment = outcome["results"]["stdout"].splitlines()
    wanted = {f"JUJU_CHARM_TRACE_CONFIG_{name}=" for name in ("HTTP", "GRPC", "CA_CERT")}
    assert wanted <= {*environment}
    assert f"JUJU_ACTION_UUID={int(outcome['id'])}" in environment
    assert [line for line in environment if line.endswith("=of the pod")] == []


def test_table_of_status_cuts_messages():
    """Seen with 3.6 and 4.0.15; cmd/juju/status/output_tabular.go."""
    assert display.cut("a" * 120) == "a" * 120
    assert display.cut("a" * 121) == "a" * 117 + "..."
