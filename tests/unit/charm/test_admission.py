"""When the webhook runs, what is waited for, and what keeps it from working."""

import base64
import time

import pytest
from ops import testing

from integrator_contract import names
from tests import tls_pairs
from tests.unit.cases import cases
from tests.unit.charm import fake_cluster
from tests.unit.charm.ambient_objects import install_ambient
from tests.unit.charm.charm_world import state
from tests.unit.charm.diagnosis.world import diagnose, said

NAME = "mesh-2-admission"
CONFIGURATION = ("MutatingWebhookConfiguration", "0-istio-integrator.kf.mesh-2")
WORKS, NOT_NEEDED = "admission: webhook", "admission: not needed"
DIAGNOSE = "run: juju run mesh-2/leader diagnose"
ROTATE = "juju run mesh-2/leader rotate-certificates"
MEMBER = {"istio-injection": "enabled"}


@pytest.fixture(autouse=True)
def installed(ctx, fake):
    fake_cluster.install_istio(fake)
    install_ambient(fake)


def run(ctx, **options):
    return ctx.run(ctx.on.config_changed(), state(**options)).unit_status


def is_probe(obj):
    return obj["kind"] == "Pod" and names.PROBE in obj["metadata"].get("labels", {})


def kinds_of_ours(fake):
    return {obj["kind"] for obj in fake.objects.values() if fake_cluster.is_webhooks(obj)}


def test_webhook_that_changed_is_tried_a_few_times_and_another_once(ctx, fake, monkeypatch):
    tries, late = [], []
    monkeypatch.setattr(time, "monotonic", lambda: 3.0 * len(late))

    def answer(obj):
        if is_probe(obj):
            tries.append(obj)
            fake.webhook_answers = len(tries) == 2

    fake.webhook_answers = False
    fake.validators.append(answer)
    assert WORKS in run(ctx).message
    assert len(tries) == 3
    run(ctx)
    assert len(tries) == 4
    # A server that was told of new settings, and a configuration that was written, are changes.
    owned = {names.COMPONENT: "admission-webhook", names.OWNER: "kf.mesh-2"}
    fake.put("Pod", "server", labels=owned)
    run(ctx)
    assert len(tries) == 11
    run(ctx, served_namespaces="model")
    assert len(tries) == 18
    # A webhook that is silent takes three seconds of each.
    fake.delete(*CONFIGURATION)
    fake.validators.append(lambda obj: late.append(obj) if is_probe(obj) else None)
    run(ctx)
    assert len(tries) == 20


def test_older_settings_are_not_taken_for_the_current_ones(ctx, fake):
    run(ctx)
    data = fake.find("ConfigMap", NAME, "kf")["data"]
    older, answer = data["settings.json"], fake._prepare

    def prepare(pod):
        now = fake.find("ConfigMap", NAME, "kf")["data"]
        current, now["settings.json"] = now["settings.json"], older
        answer(pod)
        now["settings.json"] = current

    fake._prepare = prepare
    status = run(ctx, hold_application=False)
    assert status.name == "waiting"
    assert "admission: the webhook changes a dry-run pod by older settings" in status.message


def has_pod(**status):
    """A server whose pod has a status."""

    def add(fake):
        owner = {names.OWNER: "kf.mesh-2"}
        labels = {names.COMPONENT: "admission-webhook", **owner}
        fake.put("Pod", "a-server", labels=labels, status={"conditions": [SCHEDULED]})
        fake.put("Pod", "server", labels=labels, status={"conditions": [SCHEDULED], **status})
        condition = {"type": "ReplicaFailure", "status": "False", "reason": "FailedCreate"}
        fake.find("Deployment", NAME, "kf")["status"] = {"conditions": [condition]}

    return add


def pod_waits(reason, message=""):
    waiting = {"waiting": {"reason": reason, "message": message}}
    running = {"name": "istio-proxy", "state": {"running": {}}}
    return has_pod(containerStatuses=[running, {"name": "admission", "state": waiting}])


def pods_are_refused(message):
    def refused(fake):
        condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
        progress = {"type": "Progressing", "status": "True", "message": "no"}
        status = {"conditions": [progress, {**condition, "message": message}]}
        fake.find("Deployment", NAME, "kf")["status"] = status

    return refused


QUOTA = 'pods "a-7d-x" is forbidden: exceeded quota: small, requested: pods=1'
SECURITY = 'pods "a-7d-x" is forbidden: violates PodSecurity "restricted:latest": capabilities'
DENIED = 'admission webhook "validate.kyverno.svc-fail" denied the request: no registry of ours'
LONG = "x" * 200
CPU = "0/1 nodes are available: 1 Insufficient cpu."
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
UNSCHEDULED["message"] = CPU
PULL = "Back-off pulling image"
SCHEDULED = {"type": "PodScheduled", "status": "True"}


@cases(
    ("trouble", "what", "words"),
    image=(pod_waits("ImagePullBackOff", PULL), "webhook pods: ImagePullBackOff", PULL),
    crashing=(pod_waits("CrashLoopBackOff"), "webhook pods: CrashLoopBackOff", ""),
    unschedulable=(has_pod(conditions=[UNSCHEDULED]), "webhook pods: Unschedulable", CPU),
    quota=(pods_are_refused(QUOTA), "ResourceQuota small rejects pods", "requested: pods=1"),
    standard=(pods_are_refused(SECURITY), "Pod Security restricted:latest rejects pods", "capab"),
    webhook=(pods_are_refused(DENIED), 'webhook "validate.kyverno.svc-fail" rejects pods', "no r"),
    long_name=(pods_are_refused(DENIED.replace("validate", LONG)), f'webhook "{LONG}', "no reg"),
    anything=(pods_are_refused("no image was found"), "FailedCreate rejects pods", "no image"),
)
@pytest.mark.parametrize("is_asked", [False, True], ids=["from-the-start", "later"])
def test_what_keeps_the_webhooks_pods_from_being_ready_is_named(  # noqa: PLR0917 - a table
    ctx, fake, trouble, what, words, is_asked
):
    fake.webhook_is_ready = is_asked
    run(ctx)
    fake.webhook_answers = False
    fake.find("Deployment", NAME, "kf")["status"] = {}
    trouble(fake)
    status = run(ctx)
    assert status.name == "blocked"
    assert f"admission: {what}" in status.message
    assert f"admission: {what[:30]}" in status.message[:100]
    assert DIAGNOSE in status.message[:100]
    assert f"; {words}" in status.message
    (found,) = diagnose(ctx, "admission")
    assert found.message == "PODS_NOT_PREPARED"
    assert what in found.seen
    assert words in found.seen


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_pods_that_start_as_usual_are_waited_for(ctx, fake, reason):
    fake.webhook_is_ready = False
    run(ctx)
    pod_waits(reason)(fake)
    assert run(ctx).message.startswith("admission: the webhook's pods are starting")


@pytest.mark.parametrize("message", [QUOTA, DENIED], ids=["quota", "webhook"])
def test_refused_dry_run_pod_is_told_by_its_author_and_not_tried_again(ctx, fake, message):
    tries = []

    def refuse(obj):
        if is_probe(obj):
            tries.append(obj)
            return 403, message
        return None

    fake.validators.append(refuse)
    status = run(ctx)
    assert status.name == "blocked"
    author, command = 'webhook "validate.kyverno.svc-fail"', DIAGNOSE
    if message == QUOTA:
        author, command = "ResourceQuota small", "run: kubectl describe namespace kf"
    assert author in status.message[:100]
    assert command in status.message[:100]
    assert len(tries) == 1
    # The refusal shows nothing about the webhook.
    (found,) = diagnose(ctx, "admission")
    assert found.message == "OBJECT_REFUSED"
    assert author in found.seen
    # A webhook whose pods are rejected by the same author prepares no pods.
    pods_are_refused(message)(fake)
    assert f"admission: {author} rejects pods" in run(ctx).message
    (found,) = diagnose(ctx, "admission")
    assert found.message == "PODS_NOT_PREPARED"
    assert author in found.seen


def test_dry_run_pod_that_only_istiod_refuses_shows_a_webhook_that_does_not_answer(ctx, fake):
    run(ctx)
    fake.webhook_answers = False
    fake_cluster.set_istiod(fake, alive=False)
    assert said(diagnose(ctx, "admission")) == ["PODS_NOT_PREPARED"]


PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile", **MEMBER}
OUTSIDE = {**PROFILE, "istio-injection": "disabled"}
AMBIENT_PROFILE = {names.PART_OF: names.PROFILE, "istio.io/dataplane-mode": "ambient"}
AMBIENT = {"mesh_mode": "ambient"}
REGISTRIES = "[{pods: a, prefixes: {docker.io: b.io}}]"


@cases(
    ("options", "model", "profile", "needs"),
    the_model_is_to_join=({"mesh_mode": "auto"}, {}, None, True),
    nothing=({}, {}, None, False),
    joined_already=({}, MEMBER, None, True),
    included_pods=({"mesh_mode": "auto", "included_pods": "a=b"}, {}, None, True),
    excluded_pods=({"excluded_pods": "a=b"}, {}, None, True),
    labels=({"pod_labels": "{a: b}"}, {}, None, True),
    annotations=({"pod_annotations": "{a: b}"}, {}, None, True),
    ports=({"excluded_outbound_ports": "80"}, {}, None, True),
    registries=({"image_registries": REGISTRIES}, {}, None, True),
    profile_gets_sidecars=({}, {}, PROFILE, True),
    profile_of_a_revision=({}, {}, {**PROFILE, "istio.io/rev": "x"}, True),
    profile_outside=({}, {}, {**OUTSIDE, "istio.io/rev": "x"}, False),
    profile_of_another=({}, {}, {**PROFILE, names.SERVED_BY: "kf.other"}, False),
    ambient=(AMBIENT, {}, None, False),
    ambient_without_some_pods=({**AMBIENT, "excluded_pods": "a=b"}, {}, None, True),
    ambient_with_labels=({**AMBIENT, "pod_labels": "{a: b}"}, {}, None, True),
    ambient_of_some_pods=({**AMBIENT, "included_pods": "a=b"}, {}, None, True),
    ambient_beside_a_profile_with_sidecars=(AMBIENT, {}, PROFILE, True),
    ambient_beside_a_profile_of_ambient_mode=(AMBIENT, {}, AMBIENT_PROFILE, False),
)
def test_webhook_runs_while_pods_get_something(  # noqa: PLR0917 - a table
    ctx, fake, options, model, profile, needs
):
    fake.application("other")
    fake.labels("kf").update(model)
    if profile is not None:
        fake.namespace("kf-user")["metadata"]["labels"].update(profile)
    status = run(ctx, **{"mesh_mode": "none", **options})
    assert (WORKS if needs else NOT_NEEDED) in status.message
    assert bool(kinds_of_ours(fake)) is needs


def test_webhook_goes_when_it_is_needed_no_more(ctx, fake):
    fake.namespace("kf-user", **PROFILE)
    run(ctx, mesh_mode="none")
    assert kinds_of_ours(fake)
    fake.find("Namespace", "kf-user")["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert NOT_NEEDED in run(ctx, mesh_mode="none").message
    assert kinds_of_ours(fake) == set()


def test_webhook_goes_after_the_model_is_in_ambient_mode_and_comes_before_it_is_back(ctx, fake):
    run(ctx)
    for mode in ("ambient", "sidecar"):
        fake.writes.clear()
        run(ctx, mesh_mode=mode)
        joined = fake.writes.index("patch namespaces kf")
        webhook = next(n for n, each in enumerate(fake.writes) if "mutatingwebhook" in each)
        assert (joined < webhook) is (mode == "ambient")


def test_webhook_stays_in_a_member_while_no_istio_is_found_and_does_not_begin_elsewhere(ctx, fake):
    fake_cluster.uninstall_istio(fake)
    run(ctx)
    assert kinds_of_ours(fake) == set()
    fake.labels("kf").update(MEMBER)
    run(ctx)
    assert "Deployment" in kinds_of_ours(fake)


@pytest.mark.parametrize(
    ("hold", "networks", "wanted"),
    [(True, "none", True), (False, "", True), (False, "none", False)],
)
def test_profiles_are_prepared_only_while_their_pods_get_something(
    ctx, fake, hold, networks, wanted
):
    run(ctx, hold_application=hold, pod_networks=networks, job_sidecars="classic")
    found = fake.find(*CONFIGURATION)
    kinds = {hook["name"].partition(".")[0] for hook in found["webhooks"]}
    assert "model" in kinds
    assert ("profiles" in kinds) is wanted


def test_follower_leaves_the_webhook_to_the_leader(ctx, fake):
    message = "not in the mesh until the admission webhook prepares new pods"
    assert run(ctx, leader=False).message == message
    run(ctx)
    fake.writes.clear()
    assert isinstance(run(ctx, leader=False), testing.ActiveStatus)
    assert fake.writes == []


def rotate(ctx, container=None, **options):
    ctx.run(ctx.on.action("rotate-certificates"), state(container, **options))
    return ctx.action_results["result"]


def test_certificates_are_replaced_when_asked_for(ctx, fake):
    run(ctx)
    secret = fake.find("Secret", f"{NAME}-tls", "kf")
    before = secret["data"]
    hooks = fake.find(*CONFIGURATION)["webhooks"]
    hooks[-1]["clientConfig"]["caBundle"] = "eA=="
    for ended in ({"CERTIFICATE_ENDED": ROTATE}, {}):
        secret["data"] = tls_pairs.pair(days=(-91, -1)) if ended else before
        rows = diagnose(ctx, "certificates", state(leader=False))
        problems = {row.message: row.next for row in rows if row.level != "fine"}
        assert problems == {**ended, "WEBHOOK_UNTRUSTED": ROTATE}
    shown = []

    def look(obj):
        if "tls.crt" in obj.get("data", ()):
            hook = fake.find(*CONFIGURATION)["webhooks"][0]
            shown.append((obj["data"]["tls.crt"], hook["clientConfig"]["caBundle"]))

    fake.validators.append(look)
    assert rotate(ctx) == "certificates are replaced, the webhook answers"
    note = "servers show the new one within a minute; both are trusted for a day"
    assert ctx.action_results["note"] == note
    ((certificate, bundle),) = shown
    assert base64.b64decode(certificate) in base64.b64decode(bundle), "not trusted yet"
    after = fake.find("Secret", f"{NAME}-tls", "kf")["data"]
    assert after["tls.crt"] != before["tls.crt"]
    assert after["previous.crt"] == before["tls.crt"]
    assert "WEBHOOK_UNTRUSTED" not in said(diagnose(ctx, "certificates"))
    fake.webhook_answers, tries = False, []
    fake.validators.append(lambda obj: tries.append(obj) if is_probe(obj) else None)
    assert rotate(ctx) == (
        "certificates are replaced, the webhook does not answer: "
        "the webhook does not change a dry-run pod yet"
    )
    assert len(tries) >= 7


@cases(
    ("given", "words"),
    follower=({"leader": False}, "only the leader replaces certificates: use its unit"),
    no_image=(
        {"container": testing.Container("lifecycle", can_connect=False)},
        "nothing is replaced: waiting for the lifecycle",
    ),
)
def test_certificates_are_not_replaced_by_a_follower_or_without_an_image(ctx, fake, given, words):
    run(ctx)
    fake.writes.clear()
    with pytest.raises(testing.ActionFailed, match=words):
        rotate(ctx, **given)
    assert fake.writes == []


def test_without_a_webhook_there_are_no_certificates_to_replace(ctx):
    run(ctx, mesh_mode="none")
    words = "no webhook is in use, so there are no certificates"
    assert rotate(ctx, mesh_mode="none") == words
