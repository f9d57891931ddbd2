"""What a real Juju does: 4.0.15 as seen on the testbed's node, and the source of 3.6 and 4.0.

Each test names the place in juju/juju, or says that the behaviour was seen.
"""

import contextlib
import pathlib
import sys
import zipfile

import pytest
import yaml

from juju_standin.agent import initialise, main
from juju_standin.controller import calls, objects, operations, view
from juju_standin.controller.state import Model, Status, Unit
from tests import waiting
from tests.unit.cases import cases
from tests.unit.juju_standin.conftest import Controller

PRODUCT = yaml.safe_load((pathlib.Path(__file__).parents[3] / "metadata.yaml").read_text())
PRODUCT = {side: PRODUCT.get(side, {}) for side in ("provides", "requires", "peers")}


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


@cases(
    ("changes", "workload", "agent"),
    gone=({}, "unknown", "lost"),
    connected=({"seen": float("inf")}, "active", "idle"),
    never_connected=({"seen": 0.0}, "active", "idle"),
    in_error=({"agent": Status("error", "hook failed")}, "error", "lost"),
    terminated=({"workload": Status("terminated")}, "terminated", "lost"),
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


PEERS = {"peers": {"cluster": {"interface": "plain-cluster"}}}
DATABASE = {"requires": {"database": {"interface": "sql"}}}


@pytest.fixture
def described(plain, tmp_path):
    """Pack the plain charm with another metadata.yaml."""

    def pack(**metadata):
        target = tmp_path / f"{len([*tmp_path.iterdir()])}.charm"
        with zipfile.ZipFile(plain) as source, zipfile.ZipFile(target, "w") as archive:
            for part in source.infolist():
                if part.filename != "metadata.yaml":
                    archive.writestr(part, source.read(part))
            archive.writestr("metadata.yaml", yaml.safe_dump({"name": "plain", **metadata}))
        return target

    return pack


LEFT = ["database-relation-departed", "database-relation-broken"]
LAST = ["stop", "remove"]


@cases(
    ("endpoints", "removal", "last"),
    nothing=({}, "whole", []),
    endpoint_without_relation_to_0=(DATABASE, "units", []),
    relation=(DATABASE, "whole", [*LEFT, *LAST]),
    peers=(PEERS, "whole", LAST),
    peers_to_0=(PEERS, "units", LAST),
    peers_by_force=(PEERS, "force", []),
    this_charm=(PRODUCT, "whole", LAST),
)  # fmt: skip
def test_unit_runs_its_last_hooks_only_if_it_has_a_relation(
    model, described, endpoints, removal, last
):
    """Seen with 4.0.15, of a healthy unit; by force 3.6 tries the hooks for a minute."""
    model.juju.deploy(described(**endpoints), "a")
    model.start("a/0")
    model.wait_idle("a")
    if LEFT[0] in last:
        model.juju.fake_app("sql", {"db": {"role": "provides"}})
        model.juju.integrate("a:database", "sql")
        model.wait_for_hook("a/0", "database-relation-changed")
        model.wait_idle("a")
    before = model.hooks("a/0")
    if removal == "units":
        model.juju.remove_unit("a", 1)
        model.juju.wait(lambda status: not status["applications"]["a"]["units"], 20)
    else:
        model.juju.remove_application("a", force=removal == "force")
        model.juju.wait(lambda status: status["applications"]["a"]["life"] == "dead", 60)
    assert model.hooks("a/0") == before + last


def test_dying_unit_is_in_the_scope_of_its_peers_until_it_is_dead(model, described):
    """Seen with 4.0.15; its peers get departed then."""
    script = '[ "$JUJU_UNIT_NAME $JUJU_HOOK_NAME" != "a/1 remove" ]'
    model.juju.deploy(described(**PEERS), "a", num_units=2, config={"script": script})
    for unit in ("a/0", "a/1"):
        model.start(unit)
    for unit in ("a/0", "a/1"):
        model.wait_for_hook(unit, "cluster-relation-joined")
    model.juju.remove_unit("a", 1)
    model.wait_for_hook("a/1", "remove")
    (peers,) = model.state.relations.values()
    assert sorted(peers.scope) == ["a/0", "a/1"]
    leaving = model.state.unit("a/1")
    assert waiting.eventually(lambda: leaving.agent.status == "error")
    model.juju.resolved("a/1")
    model.wait_for_hook("a/0", "cluster-relation-departed")
    assert peers.scope == ["a/0"]
    departed = [name for name in model.hooks("a/1") if name.endswith(("departed", "broken"))]
    assert departed == ["cluster-relation-departed"]


@cases(
    ("before", "after", "refused"),
    same=(PEERS, PEERS, ""),
    fewer=(PEERS | DATABASE, PEERS, ""),
    new_peers=(DATABASE, PEERS | DATABASE, "cluster"),
    new_endpoint=(PEERS, PEERS | DATABASE, "database"),
    renamed=(DATABASE, {"requires": {"db": {"interface": "sql"}}}, "db"),
)
def test_refresh_to_a_charm_with_a_new_endpoint_is_refused(
    model, described, before, after, refused
):
    """Seen with 4.0.15."""
    model.juju.deploy(described(**before), "a")
    error = contextlib.nullcontext()
    if refused:
        error = pytest.raises(calls.CallError, match=f'endpoints "{refused}" do not exist')
    with error:
        model.juju.refresh("a", described(**after))
    assert model.state.applications["a"].charm_modified_version == (0 if refused else 1)


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
