"""Actions of the charm, whose answers the workload gives."""

import pytest
import yaml
from ops import testing

from integrator_contract import names
from tests import asked
from tests.unit.cases import cases
from tests.unit.charm.charm_world import POD, state, told, workload

pytestmark = pytest.mark.usefixtures("installed")


def test_list_uninjected_names_each_pod_and_why(ctx):
    other = {**POD, "namespace": "kf-user", "workload": "", "message": "is\x1b[2J new"}
    ctx.run(ctx.on.action("list-uninjected"), state(workload(POD, other, eligible=15)))
    minio = "kf/minio-0 (StatefulSet/minio): was created before the mesh was there"
    assert ctx.action_results == {
        "in-mesh": "14/15",
        "pods": f"{minio}\nkf-user/minio-0: is\\x1b[2J new",
    }


@cases(("dry_run", "result"), for_real=(False, "restarting"), dry_run=(True, "would-restart"))
@pytest.mark.parametrize("stale", [False, True])
def test_restart_asks_the_workload(ctx, *, stale, dry_run, result):
    job = {**POD, "name": "job-x", "workload": "", "fixable": False, "message": "a Job's"}
    container = workload(POD, job)
    action = "restart-stale" if stale else "restart-uninjected"
    params = {"dry-run": dry_run} if stale else {"dry-run": dry_run, "force": not dry_run}
    out = ctx.run(ctx.on.action(action, params=params), state(container))
    method, path, authorization = asked.SERVICE.requests[-1]
    assert (method, path.partition("?")[0]) == ("POST", "/restart")
    forces = not stale and not dry_run
    assert ("stale=" in path, "dry-run=" in path, "force=" in path) == (stale, dry_run, forces)
    token = told(ctx, out).token
    assert len(token) == 32
    assert authorization == f"Bearer {token}"
    minio = "kf/minio-0 (StatefulSet/minio): was created before the mesh was there"
    assert ctx.action_results == {result: minio, "restart-yourself": "kf/job-x: a Job's"}


def test_action_without_an_answer_fails_with_the_reason(ctx):
    with pytest.raises(testing.ActionFailed, match="no connection"):
        ctx.run(ctx.on.action("list-uninjected"), state(workload(code=502, text="no connection")))


@cases(
    ("given", "words"),
    wrong_options=(
        {"revision": "1.31", "mtls": "x"},
        "revision='1.31': use .*; mtls='x': must be 'inherit' or 'strict'$",
    ),
    removal=({"units": 0}, "^the application is being removed$"),
)
def test_action_of_a_model_that_is_not_served_fails_with_the_reason(ctx, fake, given, words):
    with pytest.raises(testing.ActionFailed, match=words):
        ctx.run(ctx.on.action("list-uninjected"), state(**given))
    assert fake.writes == []


def test_actions_that_find_no_pod_or_object_say_none(ctx, fake):
    ctx.run(ctx.on.action("show-manifests"), state(leader=False))
    assert ctx.action_results == {"manifests": "none"}
    ctx.run(ctx.on.action("list-uninjected"), state())
    assert ctx.action_results == {"in-mesh": "14/14", "pods": "none"}
    ctx.run(ctx.on.action("restart-stale"), state())
    assert ctx.action_results == {"restarting": "none"}


def stopping(answer) -> testing.State:
    container = workload()
    asked.SERVICE.answer = 200, asked.headed(answer).encode()
    return state(container)


RULED = {"namespace": "kf-user", "name": "job-x", "decision": "stop", "containers": ["main"]}
RULED |= {"reason": "PayloadEnded", "message": "main has ended"}


def test_stop_proxy_asks_the_workload(ctx):
    answer = {**RULED, "result": "acknowledged", "transport": "exec", "detail": ""}
    ctx.run(ctx.on.action("stop-proxy", params={"pod": "job-x"}), stopping(answer))
    method, path, _ = asked.SERVICE.requests[-1]
    assert (method, path) == ("POST", "/stop?namespace=kf&pod=job-x")
    assert ctx.action_results == {"stopped": "kf/job-x, because main has ended"}


@cases(
    ("answer", "words"),
    not_ended=(
        {**RULED, "decision": "wait", "reason": "PayloadRunning", "message": "main runs"},
        "kf-user/job-x: the proxy was not stopped: main runs$",
    ),
    no_answer=(
        {**RULED, "result": "timeout", "transport": "exec", "detail": "10 s"},
        "kf-user/job-x: the proxy was not stopped: timeout by exec: 10 s",
    ),
    refused=({**RULED, "result": "refused", "transport": "exec", "detail": "404"}, "refused by"),
)
def test_stop_proxy_fails_with_the_reason(ctx, answer, words):
    params = {"pod": "job-x", "namespace": "kf-user"}
    with pytest.raises(testing.ActionFailed, match=words):
        ctx.run(ctx.on.action("stop-proxy", params=params), stopping(answer))


@cases(
    ("code", "said", "told"),
    asked_wrongly=(400, "namespace kf has no pod x", "namespace kf has no pod x"),
    not_answered=(502, "503 : etcd is away", "the workload reports: 503 : etcd is away"),
)
def test_stop_proxy_fails_with_the_words_of_the_service(ctx, code, said, told):
    given = state(workload(code=code, text=said))
    with pytest.raises(testing.ActionFailed) as failed:
        ctx.run(ctx.on.action("stop-proxy", params={"pod": "x"}), given)
    assert failed.value.message == told


def test_show_manifests_shows_what_is_ours_and_no_key(ctx, fake):
    ctx.run(ctx.on.config_changed(), state())
    secret = fake.find("Secret", "mesh-2-admission-tls", "kf")
    secret["data"]["more"] = "YQ=="
    secret["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    fake.find("Deployment", "mesh-2-admission", "kf")["spec"]["x"] = "x-0123456789abcdef"
    ctx.run(ctx.on.action("show-manifests"), state())
    shown = {one["kind"]: one for one in yaml.safe_load_all(ctx.action_results["manifests"])}
    assert {"Deployment", "Service", "MutatingWebhookConfiguration"} <= shown.keys()
    assert shown["Secret"]["data"] == dict.fromkeys(secret["data"], "(not shown)")
    assert "managedFields" not in shown["Secret"]["metadata"]
    owners = {one["metadata"]["labels"][names.OWNER] for one in shown.values()}
    assert owners == {"kf.mesh-2"}
    assert (shown["Deployment"]["spec"]["x"], "status" in shown["Deployment"]) == (
        "(not shown)",
        False,
    )
