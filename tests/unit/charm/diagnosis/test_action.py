"""The action, and what the status takes from it, on a cluster that keeps objects."""

import json
import pathlib

import pytest
from ops import testing

from integrator_contract import names
from tests import asked
from tests.unit.cases import cases
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import APPLICATION, MODEL, context, state
from tests.unit.charm.diagnosis import world
from tests.unit.charm.diagnosis.world import add_pod
from tests.unit.charm.security import members

pytestmark = pytest.mark.usefixtures("installed")
ROOT = pathlib.Path(__file__).parents[4]
MEMBER = {"istio-injection": "enabled"}


def diagnose(ctx, given=None):
    """Run the action; its messages by check with their levels, and what it failed with."""
    failure = ""
    try:
        ctx.run(ctx.on.action("diagnose", params={"format": "json"}), given or state())
    except testing.ActionFailed as failed:
        failure = failed.message
    findings = {}
    for each in json.loads((ctx.action_results or {}).get("report", "[]")):
        findings.setdefault(each["check"], []).append((each["level"], each["message"]))
    return findings, failure


def test_healthy_model_gives_only_check_marks(ctx):
    findings, failure = diagnose(ctx)
    assert failure == ""
    assert [*findings.values()] == [
        [("fine", name)]
        for name in (
            *("ISTIOD_INJECTS", "NAMESPACE_AS_WANTED", "PODS_IN_MESH", "NO_PROXY_OUTLIVES"),
            *("ADMISSION_WORKS", "PODS_NOT_REJECTED", "CERTIFICATE_VALID", "GATEWAY_NOT_USED"),
            *("CALLS_NOT_DENIED", "OPTION_WRITES_NOTHING", "JOBS_UNCHANGED", "EGRESS_OPEN"),
            "TRUSTED",
        )
    ]


def test_diagnosis_without_a_token_fails_with_the_reason(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    findings, failure = diagnose(context())
    assert findings == {}
    assert failure.startswith("no access to the Kubernetes API: ")


def test_text_is_what_people_get_unasked(ctx):
    ctx.run(ctx.on.action("diagnose"), state())
    *lines, last = ctx.action_results["report"].splitlines()
    assert "✓ istiod         istio-system/istiod 1.31 gave a dry-run pod its sidecar" in lines
    assert [line[2:].partition("  ")[0] for line in lines] == [
        *("istiod", "namespace", "sidecars", "finished pods", "admission", "rejections"),
        *("certificates", "gateway", "others", "security", "training", "egress", "rights"),
    ]
    assert ctx.action_results["summary"] == f"{len(lines)} passed"
    assert last == "See also: istioctl analyze -n kf ; istioctl proxy-status"


def test_worst_is_first_with_what_to_do_and_where_to_read_of_it(ctx, fake):
    fake_cluster.install_istio(fake, alive=False)
    fake.forbidden.add(("list", "pods"))
    findings, failure = diagnose(ctx, state(job_sidecars="native"))
    rows = json.loads(ctx.action_results["report"])
    with pytest.raises(testing.ActionFailed, match=failure):
        ctx.run(ctx.on.action("diagnose"), state(job_sidecars="native"))
    *lines, _ = ctx.action_results["report"].splitlines()
    heads = "".join(line[0] for line in lines if not line.startswith(" "))
    assert heads == "".join(sorted(heads, key="✗!✓".index))
    counts = [heads.count(level) for level in "✗!✓"]
    assert 0 not in counts
    assert failure == "{} broken, {} to look at, {} passed".format(*counts)
    assert len(heads) == sum(map(len, findings.values()))
    place = next(n for n, line in enumerate(lines) if line.startswith("✗ istiod"))
    command, meaning, remedy = (line.strip() for line in lines[place + 1 : place + 4])
    assert command.startswith("→ kubectl -n istio-system get pods,endpoints")
    assert meaning.startswith("failed calling webhook: the API server cannot call ")
    assert remedy.startswith("Remedy: start istiod")
    remedies = [line for line in lines if line.strip().startswith("Remedy: ")]
    symptoms = {each for row in rows if row["level"] != "fine" for each in row["symptoms"]}
    assert len(remedies) == len({*remedies}) == len(symptoms)


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/debug.md"])
def test_report_of_a_page_is_what_diagnose_prints(ctx, fake, page):
    fake_cluster.set_istiod(fake, alive=False)
    with pytest.raises(testing.ActionFailed):
        ctx.run(ctx.on.action("diagnose"), state())
    _, _, shown = (ROOT / page).read_text().partition("```text\n✗ istiod")
    assert shown
    shown = f"✗ istiod{shown.partition('…')[0]}".replace("kubeflow", MODEL)
    shown = shown.replace("istio-integrator", APPLICATION)
    assert ctx.action_results["report"].startswith(shown)


def failed_create(fake, namespace, name, message, kind="StatefulSet", **changes):
    about = {"kind": kind, "name": name, "namespace": namespace}
    event = {"reason": "FailedCreate", "message": message, "involvedObject": about, **changes}
    fake.put("Event", f"{name}.1", namespace, **event)


def test_pods_of_profiles_that_a_policy_refuses_are_named_with_its_author(ctx, fake):
    fake.namespace("kf-user", **{names.PART_OF: names.PROFILE, **MEMBER})
    fake.namespace("elsewhere")
    denied = (
        "create Pod nb-0 in StatefulSet nb failed error: admission webhook "
        '"validate.kyverno.svc" denied the request: no privileged containers'
    )
    failed_create(fake, "kf-user", "nb", denied)
    failed_create(fake, "elsewhere", "theirs", denied)
    failed_create(fake, "kf-user", "fine", "created it", reason="SuccessfulCreate")
    (found,) = world.diagnose(ctx, "rejections")
    assert found.seen == (
        'pods of kf-user/nb were rejected: webhook "validate.kyverno.svc" refuses: '
        "no privileged containers"
    )
    assert found.next == "kubectl -n kf-user get events --field-selector reason=FailedCreate"
    for number in range(8):
        failed_create(fake, "kf", f"train-{number}", denied)
    failed_create(fake, "kf", "nb", denied)
    findings, _ = diagnose(ctx)
    assert findings["rejections"] == [("doubtful", "PODS_WERE_REJECTED")] * 10
    failed_create(fake, "kf", "train-8", denied)
    assert diagnose(ctx)[0]["rejections"] == findings["rejections"]
    fake.forbidden.add(("list", "events"))
    findings, _ = diagnose(ctx)
    assert ("doubtful", "CHECK_FORBIDDEN") in findings["rejections"]


@cases(
    ("count", "more"),
    ten=(9, []),
    eleven=(10, ["11 objects are passed over, of which these are 10"]),
)
def test_objects_that_cannot_be_read_are_named_up_to_ten(ctx, fake, count, more):
    fake.put("Node", "odd", "")
    for number in range(count):
        fake.put("Pod", f"odd-{number}", spec=5)
    first, second, *rest = world.diagnose(ctx, "odd objects")
    assert (first.level, first.next) == ("doubtful", "kubectl get node odd -o yaml")
    assert second.seen.startswith("Pod kf/odd-0 is passed over: ")
    assert second.next == "kubectl -n kf get pod odd-0 -o yaml"
    assert [row.seen for row in rest[8:]] == more
    assert len(rest) == 8 + len(more)


INVALID = 'Error creating: Pod "{}" is invalid: spec.containers[1].name: Duplicate value: "a"'
KYVERNO = 'Error creating: admission webhook "validate.kyverno.svc" denied the request: no {} here'


@cases(
    ("kind", "message", "said"),
    job=("Job", INVALID.format("train-x7k2p"), 'spec.containers[1].name: Duplicate value: "a"'),
    server=("ReplicaSet", KYVERNO.format("pod/train-bcdfg"), "refuses: no pod/train here"),
    other=("CloneSet", "Error creating: no room", "no room"),
    combined=(
        "ReplicaSet",
        f"(combined from similar events): {INVALID.format('train-x7k2p')}",
        'kube-apiserver refuses: spec.containers[1].name: Duplicate value: "a"',
    ),
)
def test_pods_of_the_model_that_were_refused_are_named_without_random_names(
    ctx, fake, kind, message, said
):
    failed_create(fake, "kf", "train", message, kind)
    # The right to list the Events of all namespaces comes from an optional role.
    fake.forbidden.add(("list", "events", ""))
    (row,) = world.diagnose(ctx, "rejections")
    assert row.message == "PODS_WERE_REJECTED"
    assert row.seen.startswith("pods of kf/train were rejected: ")
    assert row.seen.endswith(said)


def test_words_of_other_teams_can_not_control_a_terminal(ctx, fake):
    failed_create(fake, "kf", "train", "Error creating: no\n room \x1b[2J\x9b2J", "CloneSet")
    diagnose(ctx)
    assert ctx.action_results["report"].isascii()
    ctx.run(ctx.on.action("diagnose"), state())
    (line,) = (x for x in ctx.action_results["report"].splitlines() if "kf/train" in x)
    assert line.endswith("pods of kf/train were rejected: no room \\x1b[2J\\x9b2J")


BROKEN, DOUBTFUL, FINE = "broken", "doubtful", "fine"


@cases(
    ("change", "options", "want"),
    istiod_is_away=(
        *(lambda fake: fake_cluster.set_istiod(fake, alive=False), {}),
        {"istiod": (BROKEN, "ISTIOD_AWAY")},
    ),
    wrong_option=(
        *(lambda _: None, {"job_sidecars": "sometimes"}),
        {"status": (BROKEN, "CONFIG_INVALID"), "istiod": (FINE, "ISTIOD_INJECTS")},
    ),
    no_right=(
        *(lambda fake: fake.forbidden.add(("*", "*")), {}),
        {"rights": (BROKEN, "RIGHTS_MISSING"), "istiod": (DOUBTFUL, "CHECK_FORBIDDEN")},
    ),
    no_workload=(
        *(lambda _: asked.SERVICE.fails(502, "no API"), {}),
        {"sidecars": (DOUBTFUL, "CHECK_FAILED"), "rights": (FINE, "TRUSTED")},
    ),
    no_api_server=(
        *(lambda fake: setattr(fake, "unreachable", True), {}),
        {"istiod": (DOUBTFUL, "CHECK_FAILED")},
    ),
)
def test_what_fails_is_a_row_and_everything_else_is_looked_at(ctx, fake, change, options, want):
    given = state(**options)
    change(fake)
    findings, failure = diagnose(ctx, given)
    assert {check: findings[check][0] for check in want} == want
    assert ("broken" in failure) is (BROKEN in {level for level, _ in want.values()})
    rows = json.loads(ctx.action_results["report"])
    looks = {row["next"] for row in rows if row["message"] in ("CONFIG_INVALID", "CHECK_FAILED")}
    assert looks <= {"juju debug-log --replay --include mesh-2"}


@pytest.fixture
def cut_off(fake):
    """A webhook in the mesh, which asks API servers for a certificate."""
    fake_cluster.install_istio(fake)
    labels = {"app": "katib"}
    add_pod(fake, "katib-0", containers=["main", "istio-proxy"], labels=labels)
    fake.put("Service", "katib", spec={"selector": labels, "ports": [{"port": 443}]})
    fake.add(members.webhook("katib.kubeflow.org", "katib"))
    fake.put("PeerAuthentication", "default", fake_cluster.ROOT, spec={"mtls": {"mode": "STRICT"}})


def status(ctx, given):
    return ctx.run(ctx.on.update_status(), given).unit_status


def test_leader_says_in_its_status_what_the_diagnosis_found_with_the_same_words(ctx, cut_off):
    assert not isinstance(status(ctx, state(leader=False)), testing.BlockedStatus)
    said = status(ctx, state())
    findings, _ = diagnose(ctx)
    assert findings["webhooks"] == [("broken", "WEBHOOK_NOT_REACHED")]
    assert isinstance(said, testing.BlockedStatus)
    assert said.message.startswith("run: juju run mesh-2/leader diagnose; Pod kf/")
    assert "webhook katib.kubeflow.org cannot be called" in said.message
    assert "status" not in findings


def test_status_without_the_optional_right_says_nothing_of_it(ctx, fake, cut_off):
    fake.forbidden.add(("list", "validatingwebhookconfigurations"))
    assert isinstance(status(ctx, state()), testing.ActiveStatus)
    findings, _ = diagnose(ctx)
    assert findings["webhooks"] == [("doubtful", "CHECK_FORBIDDEN")]
    fake.add(members.webhook("pods", "katib", kind="MutatingWebhookConfiguration"))
    findings, _ = diagnose(ctx)
    found = ("broken", "WEBHOOK_NOT_REACHED")
    assert findings["webhooks"] == [found, ("doubtful", "CHECK_FORBIDDEN")]
