import dataclasses
import json

import ops
import pytest
from ops import testing

import admission
import charm
import cluster as charm_cluster
import lifecycle
from tests.unit.charm import fake_cluster

PROGRAM = "/usr/bin/sidecar-lifecycle"
SUMMARY = {
    "eligible": 14,
    "in_mesh": 14,
    "converging": 0,
    "proposed": 0,
    "guarded": [],
    "reported": 0,
    "settled_before_us": False,
}
POD = {
    "namespace": "kubeflow",
    "name": "minio-0",
    "workload": "StatefulSet/minio",
    "fixable": True,
    "reason": "CreatedBeforeMesh",
    "message": "was created before the mesh was there",
}


@pytest.fixture(autouse=True)
def connected(fake, monkeypatch):
    monkeypatch.setattr(admission, "PROBE_DELAYS", ())
    monkeypatch.setattr(charm_cluster, "connect", fake.api)
    containers = [{"name": "lifecycle", "image": "workload:1"}]
    fake.add(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "istio-integrator-0", "namespace": "kubeflow"},
            "spec": {"containers": containers},
        }
    )


@pytest.fixture
def ctx() -> testing.Context[charm.IstioIntegrator]:
    return testing.Context(charm.IstioIntegrator)


def workload(*pods, can_connect=True, code=0, stderr="", **summary) -> testing.Container:
    lines = [*pods, {"summary": {**SUMMARY, **summary}}]
    answer = testing.Exec(
        (PROGRAM, "uninjected"),
        return_code=code,
        stdout="" if code else "".join(f"{json.dumps(line)}\n" for line in lines),
        stderr=stderr,
    )
    return testing.Container("lifecycle", can_connect=can_connect, execs={answer})


def state(container=None, *, leader=True, units=1, **config) -> testing.State:
    return testing.State(
        leader=leader,
        planned_units=units,
        containers={container or workload()},
        config={key.replace("_", "-"): value for key, value in config.items()},
        model=testing.Model("kubeflow", type="kubernetes"),
    )


def status(ctx, given, event=None) -> ops.StatusBase:
    return ctx.run(event or ctx.on.config_changed(), given).unit_status


def command(out: testing.State) -> str:
    return out.get_container("lifecycle").plan.services["lifecycle"].command


def test_status_is_active_when_all_is_true(ctx, fake):
    fake_cluster.install_istio(fake)
    assert status(ctx, state()) == testing.ActiveStatus(
        "istio-system/istiod 1.31 · policy · native sidecars · 14/14 pods in mesh"
    )
    assert fake.labels("kubeflow")["istio-injection"] == "enabled"


def test_status_names_what_classic_sidecars_lack(ctx, fake):
    fake_cluster.install_istio(fake, native=False)
    assert "classic sidecars" in status(ctx, state()).message


@pytest.mark.parametrize(
    "said", [testing.WaitingStatus("waiting for istiod"), testing.ActiveStatus("14/14 pods")]
)
@pytest.mark.parametrize("event", ["relation_joined", "stop"])
def test_event_that_asks_for_nothing_leaves_the_status_as_it_is(ctx, fake, event, said):
    fake_cluster.install_istio(fake)
    relation = testing.Relation("ingress")
    given = dataclasses.replace(state(), unit_status=said, relations={relation})
    arguments = () if event == "stop" else (relation,)
    assert status(ctx, given, getattr(ctx.on, event)(*arguments)) == said


EVENTS = [
    "install",
    "upgrade_charm",
    "config_changed",
    "start",
    "leader_elected",
    "update_status",
]


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_brings_about_the_same(ctx, fake, event):
    fake_cluster.install_istio(fake)
    out = ctx.run(getattr(ctx.on, event)(), state())
    assert isinstance(out.unit_status, testing.ActiveStatus)
    assert "--mesh-namespace istio-system --mesh-revision default" in command(out)
    assert fake.labels("kubeflow")["istio-injection"] == "enabled"


def test_pebble_events_bring_about_the_same(ctx, fake):
    notice = testing.Notice("istio-integrator.charmhub.io/mesh")
    check = testing.CheckInfo("live", failures=3, status=ops.pebble.CheckStatus.UP)
    container = dataclasses.replace(
        workload(), notices=[notice], check_infos={check}, layers={"x": _checks()}
    )
    for event in (
        ctx.on.pebble_ready(container),
        ctx.on.pebble_custom_notice(container, notice),
        ctx.on.pebble_check_recovered(container, check),
    ):
        fake_cluster.uninstall_istio(fake)
        assert isinstance(status(ctx, state(container), event), testing.WaitingStatus)
        fake_cluster.install_istio(fake)
        assert isinstance(status(ctx, state(container), event), testing.ActiveStatus)


def _checks() -> ops.pebble.Layer:
    return ops.pebble.Layer(
        {
            "services": {},
            "checks": {
                "live": {
                    "override": "replace",
                    "threshold": 3,
                    "http": {"url": "http://localhost:8080/livez"},
                }
            },
        }
    )


def test_second_run_of_the_same_writes_nothing(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.start(), state())
    fake.writes.clear()
    ctx.run(ctx.on.update_status(), state())
    assert fake.writes == []


def test_without_istiod_it_waits_and_the_namespace_is_unlabelled(ctx, fake):
    out = ctx.run(ctx.on.start(), state())
    assert out.unit_status == testing.WaitingStatus(
        "waiting for istiod: the cluster has no sidecar injector"
    )
    assert "istio-injection" not in fake.labels("kubeflow")
    assert "--convergence off" in command(out)


def test_with_a_dead_istiod_it_waits_and_the_namespace_is_unlabelled(ctx, fake):
    fake_cluster.install_istio(fake, alive=False)
    assert isinstance(status(ctx, state()), testing.WaitingStatus)
    assert "istio-injection" not in fake.labels("kubeflow")


def test_when_istiod_comes_it_is_active_without_anyone_typing(ctx, fake):
    before = ctx.run(ctx.on.start(), state())
    fake_cluster.install_istio(fake)
    assert isinstance(status(ctx, before, ctx.on.update_status()), testing.ActiveStatus)


def test_when_istiod_goes_the_model_stays_and_the_status_says_so(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.start(), state())
    fake_cluster.set_istiod(fake, alive=False)
    said = status(ctx, state())
    assert isinstance(said, testing.WaitingStatus)
    assert "does not inject, new pods are refused: " in said.message
    assert fake.labels("kubeflow")["istio-injection"] == "enabled"


def test_without_trust_it_is_blocked_with_the_command(ctx, fake):
    fake.forbidden.add(("*", "*"))
    assert status(ctx, state()) == testing.BlockedStatus(
        "run: juju trust istio-integrator --scope=cluster "
        "(may not list mutatingwebhookconfigurations)"
    )


def test_a_missing_rule_is_named(ctx, fake):
    fake_cluster.install_istio(fake)
    fake.forbidden.add(("patch", "namespaces"))
    assert "may not patch namespaces" in status(ctx, state()).message


@pytest.mark.parametrize("code", [429, 500, 503])
def test_trouble_of_the_api_server_is_waited_for(ctx, fake, code):
    fake_cluster.install_istio(fake)
    fake.broken["list", "mutatingwebhookconfigurations"] = code
    assert isinstance(status(ctx, state()), testing.WaitingStatus)
    fake.broken.clear()
    assert isinstance(status(ctx, state()), testing.ActiveStatus)


def test_api_server_that_does_not_answer_is_waited_for_and_the_workload_goes_on(ctx, fake):
    fake_cluster.install_istio(fake)
    before = ctx.run(ctx.on.start(), state())
    fake.unreachable = True
    after = ctx.run(ctx.on.update_status(), before)
    assert isinstance(after.unit_status, testing.WaitingStatus)
    assert command(after) == command(before)


def test_istiod_that_is_away_for_a_moment_changes_nothing(ctx, fake):
    fake_cluster.install_istio(fake)
    before = ctx.run(ctx.on.start(), state())
    fake.writes.clear()
    fake_cluster.set_istiod(fake, alive=False)
    assert command(ctx.run(ctx.on.update_status(), state())) == command(before)
    assert fake.writes == []


def test_charm_outside_of_kubernetes_waits(ctx, monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    said = status(ctx, state())
    assert isinstance(said, testing.WaitingStatus)
    assert "no access to the Kubernetes API" in said.message


def test_removal_with_wrong_options_is_done(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.start(), state())
    ctx.run(ctx.on.remove(), state(revision="1.31", units=0))
    assert "istio-injection" not in fake.labels("kubeflow")


def test_change_in_between_is_tried_again_at_once(ctx, fake):
    fake_cluster.install_istio(fake)
    fake.interference.append(lambda: fake.namespace("kubeflow", team="x"))
    assert isinstance(status(ctx, state()), testing.ActiveStatus)
    assert fake.labels("kubeflow")["istio-injection"] == "enabled"


def test_wrong_options_block_and_change_nothing(ctx, fake):
    fake_cluster.install_istio(fake)
    said = status(ctx, state(revision="1.31", log_level="x"))
    assert isinstance(said, testing.BlockedStatus)
    assert "revision='1.31'" in said.message
    assert "log-level='x'" in said.message
    assert fake.writes == []


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("proxy_shutdown", False, "--proxy-shutdown false"),
        ("wait_for_containers", "main, wait", "--wait-for-containers main,wait"),
        ("ignore_containers", "vault-agent", "--ignore-containers vault-agent"),
        ("replace_broken_pods", True, "--replace-broken-pods true"),
        ("lifecycle_namespaces", "model", "--lifecycle-namespaces model"),
        ("excluded_pods", "app in (a, b)", "--excluded-pods 'app in (a, b)'"),
        ("sidecar_convergence", "manual", "--convergence manual"),
        ("convergence_max_unavailable", 5, "--convergence-max-unavailable 5"),
    ],
)
def test_options_reach_the_workload(ctx, fake, option, value, expected):
    fake_cluster.install_istio(fake)
    assert expected in command(ctx.run(ctx.on.config_changed(), state(**{option: value})))


def test_level_of_the_log_reaches_the_workload_without_a_restart(ctx, fake):
    fake_cluster.install_istio(fake)
    before = ctx.run(ctx.on.config_changed(), state())
    after = ctx.run(ctx.on.config_changed(), state(log_level="debug"))
    assert command(after) == command(before)
    files = after.get_container(lifecycle.CONTAINER).get_filesystem(ctx)
    assert (files / lifecycle.LEVEL_FILE.lstrip("/")).read_text() == "debug"


def test_revision_that_does_not_exist_blocks(ctx, fake):
    fake_cluster.install_istio(fake)
    assert status(ctx, state(revision="x")) == testing.BlockedStatus(
        "revision x does not exist; there is default"
    )


def test_related_istio_says_which_of_several_it_is(ctx, fake):
    fake_cluster.install_istio(fake)
    fake_cluster.install_istio(fake, namespace="mesh-b")
    alone = state()
    assert "istiod-namespace=" in status(ctx, alone).message
    relation = testing.Relation("istio-metadata", remote_app_data={"root_namespace": "mesh-b"})
    related = dataclasses.replace(alone, relations={relation})
    assert status(ctx, related, ctx.on.relation_changed(relation)).message.startswith("mesh-b/")
    configured = dataclasses.replace(related, config={"istiod-namespace": "istio-system"})
    assert status(ctx, configured).message.startswith("istio-system/")
    told = status(ctx, related, ctx.on.relation_broken(relation)).message
    assert "istiod-namespace=" in told


def test_second_integrator_in_a_model_does_nothing_and_says_so(ctx, fake):
    fake_cluster.install_istio(fake)
    fake.application("first")
    first = {"owner": "kubeflow.first", "set": {}, "before": {}}
    model = fake.find("Namespace", "kubeflow")["metadata"]
    model["annotations"] = {"istio-integrator.charmhub.io/membership": json.dumps(first)}
    out = ctx.run(ctx.on.start(), state())
    assert out.unit_status == testing.BlockedStatus(
        "namespace kubeflow is in the care of kubeflow.first: remove one of us"
    )
    assert not out.get_container("lifecycle").plan.services
    assert fake.writes == []
    fake.delete("StatefulSet", "first", "kubeflow")
    assert isinstance(status(ctx, state()), testing.ActiveStatus)


def test_integrator_that_served_before_another_withdraws(ctx, fake):
    fake_cluster.install_istio(fake)
    served = ctx.run(ctx.on.start(), state())
    policies = {key[1] for key in fake.objects if key[0].startswith("admission")}
    assert "mutatingadmissionpolicies" in policies
    fake.application("first")
    first = {"owner": "kubeflow.first", "set": {}, "before": {}}
    model = fake.find("Namespace", "kubeflow")["metadata"]
    model["annotations"] = {"istio-integrator.charmhub.io/membership": json.dumps(first)}
    out = ctx.run(ctx.on.update_status(), served)
    assert "kubeflow.first" in out.unit_status.message
    services = out.get_container("lifecycle").service_statuses
    assert set(services.values()) == {ops.pebble.ServiceStatus.INACTIVE}
    left = {key[1] for key in fake.objects if key[0].startswith("admission")}
    assert "mutatingadmissionpolicies" not in left
    fake.delete("StatefulSet", "first", "kubeflow")
    again = ctx.run(ctx.on.update_status(), out)
    services = again.get_container("lifecycle").service_statuses
    assert set(services.values()) == {ops.pebble.ServiceStatus.ACTIVE}


def test_controller_model_is_left_alone(ctx, fake):
    fake_cluster.install_istio(fake)
    fake.labels("kubeflow")["controller.juju.is/id"] = "x"
    out = ctx.run(ctx.on.start(), state(pod_labels="{a: b}"))
    assert out.unit_status == testing.BlockedStatus(
        "a controller model never joins a mesh: deploy into another model"
    )
    assert not out.get_container("lifecycle").plan.services
    assert fake.writes == []


def test_membership_none_looks_after_pods_without_joining(ctx, fake):
    fake_cluster.install_istio(fake)
    out = ctx.run(ctx.on.start(), state(mesh_membership="none"))
    assert out.unit_status == testing.ActiveStatus(
        "istio-system/istiod 1.31 · policy · native sidecars"
    )
    assert "istio-injection" not in fake.labels("kubeflow")
    assert "--convergence off" in command(out)


def test_membership_of_selected_pods_leaves_the_namespace(ctx, fake):
    fake_cluster.install_istio(fake)
    options = {"mesh_membership": "selected", "included_pods": "app=ui"}
    out = ctx.run(ctx.on.start(), state(**options))
    assert isinstance(out.unit_status, testing.ActiveStatus)
    assert "istio-injection" not in fake.labels("kubeflow")
    assert "--membership selected --included-pods app=ui" in command(out)


def test_follower_runs_its_workload_and_writes_nothing(ctx, fake):
    fake_cluster.install_istio(fake)
    out = ctx.run(ctx.on.start(), state(leader=False))
    assert "--unit istio-integrator/0" in command(out)
    assert fake.writes == []


def test_container_that_is_not_there_yet_is_waited_for(ctx, fake):
    fake_cluster.install_istio(fake)
    assert status(ctx, state(workload(can_connect=False))) == testing.WaitingStatus(
        "waiting for the lifecycle container"
    )


def test_pods_being_replaced_are_maintenance(ctx, fake):
    fake_cluster.install_istio(fake)
    container = workload(POD, eligible=15, converging=1)
    assert status(ctx, state(container)) == testing.MaintenanceStatus(
        "14/15 pods in mesh, 1 being replaced"
    )


def test_workload_that_again_has_no_sidecar_blocks_with_the_reason(ctx, fake):
    fake_cluster.install_istio(fake)
    guarded = [{"workload": "StatefulSet/minio", "reason": "x", "message": "again no sidecar"}]
    container = workload(POD, eligible=15, guarded=guarded)
    assert status(ctx, state(container)) == testing.BlockedStatus(
        "StatefulSet/minio: again no sidecar"
    )


def test_workload_without_an_answer_is_waited_for(ctx, fake):
    fake_cluster.install_istio(fake)
    said = status(ctx, state(workload(code=1, stderr="no connection")))
    assert said == testing.WaitingStatus("the workload can't tell: no connection")


def test_check_that_is_down_is_waited_for(ctx, fake):
    fake_cluster.install_istio(fake)
    check = testing.CheckInfo("ready", failures=3, status=ops.pebble.CheckStatus.DOWN)
    layer = ops.pebble.Layer(
        {
            "checks": {
                "ready": {
                    "override": "replace",
                    "threshold": 3,
                    "http": {"url": "http://localhost:8080/readyz"},
                }
            }
        }
    )
    container = dataclasses.replace(workload(), check_infos={check}, layers={"x": layer})
    assert status(ctx, state(container)) == testing.WaitingStatus(
        "waiting for lifecycle to watch the cluster"
    )


def test_removal_leaves_the_cluster_as_it_was(ctx, fake):
    fake_cluster.install_istio(fake)
    before = _objects(fake)
    ctx.run(ctx.on.start(), state())
    for kind, name in (("ConfigMap", "convergence"), ("Lease", "lifecycle")):
        version = "v1" if kind == "ConfigMap" else "coordination.k8s.io/v1"
        fake.add(
            {
                "apiVersion": version,
                "kind": kind,
                "metadata": {"name": f"istio-integrator-{name}", "namespace": "kubeflow"},
            }
        )
    out = ctx.run(ctx.on.remove(), state(leader=False, units=0))
    assert _objects(fake) == before
    assert "--convergence off" in command(out)
    ctx.run(ctx.on.remove(), state(leader=False, units=0))
    assert _objects(fake) == before


def _objects(fake) -> list[str]:
    found = []
    for obj in fake.objects.values():
        metadata = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion" and v}
        found.append(json.dumps({**obj, "metadata": metadata}, sort_keys=True))
    return sorted(found)


def test_removal_tells_the_owners_of_unfinished_pods(ctx, fake):
    fake.namespace("alice", **{"app.kubernetes.io/part-of": "kubeflow-profile"})
    for namespace, name, policy in (
        ("kubeflow", "train", "OnFailure"),
        ("alice", "notebook-job", "Never"),
        ("kubeflow", "server", "Always"),
    ):
        metadata = {"name": name, "namespace": namespace}
        metadata["labels"] = {"security.istio.io/tlsMode": "istio"}
        spec = {"restartPolicy": policy, "containers": []}
        fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    lines = [
        {"namespace": "kubeflow", "name": "train", "decision": "wait"},
        {"namespace": "alice", "name": "notebook-job", "decision": "ignore"},
    ]
    told = testing.Exec((PROGRAM, "explain"), stdout=_listing(*lines))
    ctx.run(ctx.on.remove(), state(dataclasses.replace(workload(), execs={told}), units=0))
    asked = json.loads(ctx.exec_history["lifecycle"][0].stdin)
    assert [pod["metadata"]["name"] for pod in asked["items"]] == ["train", "notebook-job"]
    (event,) = [obj for obj in fake.objects.values() if obj["kind"] == "Event"]
    assert event["involvedObject"]["name"] == "train"
    assert "kubectl exec -n kubeflow train -c istio-proxy" in event["message"]


def test_scaling_down_removes_nothing(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.start(), state())
    ctx.run(ctx.on.remove(), state(units=1))
    assert fake.labels("kubeflow")["istio-injection"] == "enabled"


def test_event_during_the_removal_brings_nothing_back(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.update_status(), state(units=0))
    assert fake.writes == []


def test_removal_without_rights_does_not_fail(ctx, fake):
    fake.forbidden.add(("*", "*"))
    ctx.run(ctx.on.remove(), state(units=0))


def test_removal_with_an_api_server_in_trouble_is_tried_again(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.start(), state())
    fake.unreachable = True
    with pytest.raises(testing.errors.UncaughtCharmError):
        ctx.run(ctx.on.remove(), state(units=0))


def test_list_uninjected_names_each_pod_and_why(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.action("list-uninjected"), state(workload(POD, eligible=15)))
    assert ctx.action_results == {
        "in-mesh": "14/15",
        "pods": "kubeflow/minio-0 (StatefulSet/minio): was created before the mesh was there",
    }


@pytest.mark.parametrize(
    ("dry_run", "result", "last"),
    [
        pytest.param(False, "restarting", "--no-wait", id="for real"),
        pytest.param(True, "would-restart", "--dry-run", id="dry run"),
    ],
)
@pytest.mark.parametrize("stale", [False, True])
def test_restart_asks_the_workload(ctx, fake, *, stale, dry_run, result, last):
    fake_cluster.install_istio(fake)
    job = {**POD, "name": "job-x", "workload": "", "fixable": False, "message": "a Job's"}
    container = dataclasses.replace(
        workload(), execs={testing.Exec((PROGRAM, "uninjected"), stdout=_listing(POD, job))}
    )
    action = "restart-stale" if stale else "restart-uninjected"
    ctx.run(ctx.on.action(action, params={"dry-run": dry_run}), state(container))
    asked = [one.command for one in ctx.exec_history["lifecycle"]][-1]
    assert asked[-1] == last
    assert "--restart" in asked
    assert ("--stale" in asked) is stale
    assert "--proxy-revision default --proxy-version 1.31.1" in " ".join(asked)
    assert "kubeflow/minio-0" in ctx.action_results[result]
    assert ctx.action_results["not-ours-to-restart"] == "kubeflow/job-x: a Job's"


def _listing(*pods) -> str:
    return "".join(f"{json.dumps(pod)}\n" for pod in pods)


def test_action_without_an_answer_fails_with_the_reason(ctx, fake):
    fake_cluster.install_istio(fake)
    with pytest.raises(testing.ActionFailed, match="no connection"):
        ctx.run(ctx.on.action("list-uninjected"), state(workload(code=1, stderr="no connection")))


def test_action_with_wrong_options_fails_with_them(ctx, fake):
    with pytest.raises(testing.ActionFailed, match="revision"):
        ctx.run(ctx.on.action("list-uninjected"), state(revision="1.31"))


def stopping(answer) -> testing.State:
    answers = {testing.Exec((PROGRAM, "stop"), stdout=_listing(answer))}
    container = workload()
    return state(dataclasses.replace(container, execs={*container.execs, *answers}))


RULED = {"decision": "stop", "reason": "PayloadEnded", "message": "main has ended"}


def test_stop_proxy_asks_the_workload(ctx, fake):
    fake_cluster.install_istio(fake)
    answer = {**RULED, "result": "acknowledged", "transport": "exec", "detail": ""}
    ctx.run(ctx.on.action("stop-proxy", params={"pod": "job-x"}), stopping(answer))
    asked = [one.command for one in ctx.exec_history["lifecycle"]][-1]
    assert " ".join(asked).startswith(f"{PROGRAM} stop job-x --namespace kubeflow --output json")
    assert ctx.action_results == {"stopped": "kubeflow/job-x: main has ended (by exec)"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(
            {"decision": "wait", "reason": "PayloadRuns", "message": "main runs"},
            "alice/job-x: its proxy is not stopped: main runs .wait.",
            id="not-ended",
        ),
        pytest.param(
            {**RULED, "result": "timeout", "transport": "exec", "detail": "10 s"},
            "alice/job-x: timeout: 10 s",
            id="no-answer",
        ),
    ],
)
def test_stop_proxy_fails_with_the_reason(ctx, fake, answer, words):
    fake_cluster.install_istio(fake)
    params = {"pod": "job-x", "namespace": "alice"}
    with pytest.raises(testing.ActionFailed, match=words):
        ctx.run(ctx.on.action("stop-proxy", params=params), stopping(answer))


def test_show_manifests_shows_what_is_ours(ctx, fake):
    fake_cluster.install_istio(fake)
    ctx.run(ctx.on.action("show-manifests"), state())
    assert "manifests" in ctx.action_results


def test_old_proxies_are_counted_and_leave_the_unit_active(ctx, fake):
    fake_cluster.install_istio(fake)
    assert status(ctx, state(workload(stale=3))) == testing.ActiveStatus(
        "istio-system/istiod 1.31 · policy · native sidecars · 14/14 pods in mesh, "
        "3 with an old proxy: restart-stale"
    )


def test_charms_are_let_out_to_the_controller_that_juju_names(ctx, fake, monkeypatch):
    monkeypatch.setenv("JUJU_API_ADDRESSES", "10.1.2.3:17071")
    fake_cluster.install_istio(fake, cni=True)
    ctx.run(ctx.on.config_changed(), state())
    (policy,) = [one for one in fake.objects.values() if one["kind"] == "MutatingAdmissionPolicy"]
    assert '["17071"]' in json.dumps(policy["spec"]).replace('\\"', '"')


def test_modeloperator_that_is_cut_off_is_named(ctx, fake):
    fake_cluster.install_istio(fake)
    fake.add(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "modeloperator-x",
                "namespace": "kubeflow",
                "labels": {"operator.juju.is/name": "modeloperator"},
            },
            "spec": {"containers": [{"name": "istio-proxy"}]},
        }
    )
    assert isinstance(status(ctx, state()), testing.ActiveStatus)
    fake.add(
        {
            "apiVersion": "security.istio.io/v1",
            "kind": "PeerAuthentication",
            "metadata": {"name": "default", "namespace": "istio-system"},
            "spec": {"mtls": {"mode": "STRICT"}},
        }
    )
    assert status(ctx, state()) == testing.BlockedStatus(
        "modeloperator is in the mesh and PeerAuthentication istio-system/default asks for mutual "
        "TLS, so Juju's webhook can't be called; run: kubectl delete pod -n kubeflow "
        "modeloperator-x"
    )
    fake.forbidden.add(("list", "peerauthentications"))
    assert isinstance(status(ctx, state()), testing.ActiveStatus)
