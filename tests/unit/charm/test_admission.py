"""When the webhook runs, what is waited for, and what keeps it from working."""

import dataclasses
import json

import ops
import pytest

from integrator_contract import names
from istio_integrator.admission import admission
from istio_integrator.istio import installation
from istio_integrator.kube import errors
from tests import shown
from tests.unit.cases import cases
from tests.unit.charm.lifecycle import world

NAME = "app-admission"
WORKS = (ops.ActiveStatus, "admission: webhook")
NOT_NEEDED = (ops.ActiveStatus, "admission: not needed")
STARTING = (ops.WaitingStatus, "admission: the webhook's pods are starting")
COMMAND = "; run: juju run app/leader diagnose"
MESH = installation.Mesh(
    namespace="istio-system", revision="x", is_default=False, probed=True, native_sidecars=True
)


class Time:
    """A clock that advances by sleeping, and by a little whenever it is read."""

    def __init__(self, *, passes=0.0, wakes=None):
        self.now = 0.0
        self.slept = []
        self._passes = passes
        self._wakes = wakes or {}

    def __call__(self):
        self.now += self._passes
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.slept.append(seconds)
        # What happens meanwhile, by how often somebody has slept.
        self._wakes.get(len(self.slept), lambda: None)()


def subject(fake, time=None, *, image="workload:1", changes=None, **options):
    time = time or Time()
    scope = dataclasses.replace(world.context(fake, **options), **(changes or {}))
    return admission.Admission(scope, lambda: image, sleep=time.sleep, clock=time)


def said(part):
    return [(type(each), each.message) for each in shown.statuses(part.said)]


def reconciled(fake, **more):
    part = subject(fake, **more)
    part.said = part.reconcile()
    return part


def refuse(fake, message):
    """Have admission control of another team refuse every pod."""
    fake.validators.append(lambda obj: (403, message) if obj["kind"] == "Pod" else None)


@pytest.fixture
def stuck(fake):
    """A webhook whose pods are not ready."""
    fake.webhook_is_ready = False
    assert said(reconciled(fake)) == [STARTING]
    return fake


@pytest.mark.parametrize("answers", [True, False])
def test_webhook_is_asked_once_its_pods_are_ready(stuck, answers):
    assert "MutatingWebhookConfiguration" not in kinds_of_ours(stuck)
    stuck.webhook_is_ready, stuck.webhook_answers = True, answers
    stuck.find("Deployment", NAME, "kubeflow")["status"] = {"readyReplicas": 1}

    part = reconciled(stuck)

    problem = "admission: the webhook does not change a dry-run pod yet"
    assert said(part) == [WORKS if answers else (ops.WaitingStatus, problem)]
    assert part.works is answers


def test_webhook_is_tried_until_the_api_server_asks_it(fake):
    fake.webhook_answers = False
    time = Time(wakes={2: lambda: setattr(fake, "webhook_answers", True)})

    part = reconciled(fake, time=time)

    assert said(part) == [WORKS]
    assert len(time.slept) == 2


def test_webhook_that_is_as_it_was_is_not_waited_for(fake):
    reconciled(fake)
    fake.webhook_answers = False
    time = Time()

    reconciled(fake, time=time)

    assert time.slept == []


def test_probes_that_take_long_are_few(fake):
    fake.webhook_answers = False
    quick, slow = Time(), Time(passes=admission.PROBE_SECONDS * 0.4)

    for time in (quick, slow):
        fake.delete("MutatingWebhookConfiguration", "0-istio-integrator.kubeflow.app")
        reconciled(fake, time=time)

    assert quick.slept == sorted(admission.PROBE_DELAYS)
    assert quick.slept[0] > 0
    assert 0 < len(slow.slept) < len(quick.slept)


def test_older_settings_are_not_taken_for_the_current_ones(fake):
    reconciled(fake)
    configmap = fake.find("ConfigMap", NAME, "kubeflow")
    older = configmap["data"]["settings.json"]
    answer = fake._prepare

    def prepare(pod):
        configmap = fake.find("ConfigMap", NAME, "kubeflow")
        now = configmap["data"]["settings.json"]
        configmap["data"]["settings.json"] = older
        answer(pod)
        configmap["data"]["settings.json"] = now

    fake._prepare = prepare
    part = reconciled(fake, hold_application=False)

    problem = "admission: the webhook changes a dry-run pod by older settings"
    assert said(part) == [(ops.WaitingStatus, problem)]
    assert not part.works


def has_pod(**status):
    """A server whose pod has a status."""

    def add(fake):
        labels = {names.COMPONENT: "admission-webhook", names.OWNER: "kubeflow.app"}
        metadata = {"name": "server", "namespace": "kubeflow", "labels": labels}
        fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status})

    return add


def pod_waits(reason, message=""):
    waiting = {"waiting": {"reason": reason, "message": message}}
    return has_pod(containerStatuses=[{"name": "admission", "state": waiting}])


def pods_are_refused(message):
    def refused(fake):
        condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
        status = {"conditions": [{**condition, "message": message}]}
        fake.find("Deployment", NAME, "kubeflow")["status"] = status

    return refused


QUOTA = 'pods "app-admission-7d-x" is forbidden: exceeded quota: small, requested: pods=1'
SECURITY = (
    'pods "app-admission-7d-x" is forbidden: violates PodSecurity "restricted:latest": '
    "unrestricted capabilities"
)
DENIED = 'admission webhook "validate.kyverno.svc-fail" denied the request: no registry of ours'
CPU = "0/1 nodes are available: 1 Insufficient cpu."
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


@cases(
    ("trouble", "what", "words"),
    image=(
        pod_waits("ImagePullBackOff", "Back-off pulling image"),
        "webhook pods: ImagePullBackOff",
        "Back-off pulling image",
    ),
    crashing=(pod_waits("CrashLoopBackOff"), "webhook pods: CrashLoopBackOff", ""),
    unschedulable=(
        has_pod(conditions=[{**UNSCHEDULED, "message": CPU}]),
        "webhook pods: Unschedulable",
        CPU,
    ),
    quota=(pods_are_refused(QUOTA), "ResourceQuota small rejects pods", "requested: pods=1"),
    pod_security=(
        pods_are_refused(SECURITY),
        "Pod Security restricted:latest rejects pods",
        "unrestricted capabilities",
    ),
    webhook=(
        pods_are_refused(DENIED),
        'webhook "validate.kyverno.svc-fail" rejects pods',
        "no registry of ours",
    ),
    anything=(
        pods_are_refused("no image was found"),
        "FailedCreate rejects pods",
        "no image was found",
    ),
)
@pytest.mark.parametrize("is_asked", [False, True], ids=["from-the-start", "later"])
def test_what_keeps_the_webhooks_pods_from_being_ready_is_named(
    fake, trouble, what, words, is_asked
):
    fake.webhook_is_ready = is_asked
    reconciled(fake)
    fake.webhook_answers = False
    fake.find("Deployment", NAME, "kubeflow")["status"] = {}
    trouble(fake)

    part = reconciled(fake)

    ((kind, message),) = said(part)
    assert kind is ops.BlockedStatus
    assert message.startswith(f"admission: {what}{COMMAND}")
    assert words in message
    assert not part.works
    assert part.problem().endswith(words)
    assert what in part.problem()


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_pods_that_start_as_usual_are_waited_for(stuck, reason):
    pod_waits(reason)(stuck)

    assert said(reconciled(stuck)) == [STARTING]


def test_author_of_any_length_leaves_the_command_in_sight(stuck):
    name = "x" * 200
    pods_are_refused(f'admission webhook "{name}" denied the request: no')(stuck)

    (message,) = reconciled(stuck).said

    visible = message.status(application="app").message[:100]
    assert visible.startswith('run: juju run app/leader diagnose; admission: webhook "xxx')


@pytest.mark.parametrize("message", [QUOTA, DENIED], ids=["quota", "webhook"])
def test_refused_dry_run_pod_is_told_by_its_author_and_not_tried_again(fake, message):
    refuse(fake, message)
    time = Time()

    part = reconciled(fake, time=time)

    ((kind, found),) = said(part)
    assert kind is ops.BlockedStatus
    author = "ResourceQuota small" if message == QUOTA else 'webhook "validate.kyverno.svc-fail"'
    assert found.startswith(f"admission: {author} rejects pods{COMMAND}")
    assert time.slept == []
    assert not part.works


JOINED = {"istio-injection": "enabled"}
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile", **JOINED}
REGISTRIES = "[{pods: a, prefixes: {docker.io: b.io}}]"


@cases(
    ("options", "model", "profile", "needs"),
    the_model_is_to_join=({"mesh_mode": "auto"}, {}, None, True),
    nothing=({}, {}, None, False),
    joined_already=({}, JOINED, None, True),
    included_pods=({"mesh_mode": "auto", "included_pods": "a=b"}, {}, None, True),
    excluded_pods=({"excluded_pods": "a=b"}, {}, None, True),
    labels=({"pod_labels": "{a: b}"}, {}, None, True),
    annotations=({"pod_annotations": "{a: b}"}, {}, None, True),
    ports=({"excluded_outbound_ports": "80"}, {}, None, True),
    registries=({"image_registries": REGISTRIES}, {}, None, True),
    profile_gets_sidecars=({}, {}, PROFILE, True),
    profile_of_a_revision=({}, {}, {**PROFILE, "istio.io/rev": "x"}, True),
    profile_outside=({}, {}, {**PROFILE, "istio-injection": "disabled"}, False),
    profile_of_another=({}, {}, {**PROFILE, names.SERVED_BY: "other.app"}, False),
)
def test_webhook_runs_while_pods_get_something(fake, options, model, profile, needs):
    options = {"mesh_mode": "none", **options}
    fake.labels("kubeflow").update(model)
    if profile is not None:
        fake.namespace("alice")["metadata"]["labels"].update(profile)

    part = reconciled(fake, **options)

    assert said(part) == [WORKS if needs else NOT_NEEDED]
    assert bool(kinds_of_ours(fake)) is needs


def test_webhook_goes_when_it_is_needed_no_more(fake):
    alice = fake.namespace("alice")["metadata"]
    alice["labels"].update(PROFILE)
    reconciled(fake, mesh_mode="none")
    assert kinds_of_ours(fake)
    alice["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert said(reconciled(fake, mesh_mode="none")) == [NOT_NEEDED]

    assert kinds_of_ours(fake) == set()


def test_webhook_stays_in_a_member_while_no_istio_is_found_and_does_not_begin_elsewhere(fake):
    assert said(reconciled(fake, changes={"mesh": None})) == [NOT_NEEDED]
    fake.labels("kubeflow")["istio-injection"] = "enabled"
    assert said(reconciled(fake, changes={"mesh": None})) == [WORKS]


@pytest.mark.parametrize(
    "mesh",
    [
        pytest.param(dataclasses.replace(MESH, probed=False, native_sidecars=False), id="away"),
        pytest.param(None, id="gone"),
    ],
)
def test_new_pods_get_what_they_got_while_the_mesh_can_not_be_asked(fake, mesh):
    fake.labels("kubeflow")["istio-injection"] = "enabled"
    reconciled(fake, changes={"mesh": MESH})
    fake.writes.clear()

    reconciled(fake, changes={"mesh": mesh})

    assert fake.writes == []


def test_missing_right_to_try_a_pod_is_no_trouble_of_the_webhook(fake):
    fake.forbidden.add(("create", "pods"))
    part = subject(fake)

    with pytest.raises(errors.ForbiddenError):
        part.reconcile()

    assert not part.works


@pytest.mark.parametrize("left_alone", [True, False])
def test_pods_of_a_model_that_is_left_alone_are_its_members_and_no_more(fake, left_alone):
    if left_alone:
        fake.labels("kubeflow")[names.SERVED] = "disabled"
    reconciled(fake)

    settings = json.loads(fake.find("ConfigMap", NAME, "kubeflow")["data"]["settings.json"])
    assert settings["lifecycle-in-model"] is not left_alone


@pytest.mark.parametrize("hold", [True, False])
def test_profiles_are_prepared_only_while_their_pods_get_something(fake, hold):
    reconciled(fake, hold_application=hold)

    found = fake.find("MutatingWebhookConfiguration", "0-istio-integrator.kubeflow.app")
    kinds = {hook["name"].partition(".")[0] for hook in found["webhooks"]}
    assert "model" in kinds
    assert ("profiles" in kinds) is hold


def test_follower_says_whether_the_webhook_works_and_writes_nothing(fake):
    follower = reconciled(fake, changes={"leader": False})
    assert said(follower) == [(ops.WaitingStatus, "admission: waiting for the leader")]
    assert fake.writes == []

    reconciled(fake)
    fake.writes.clear()
    follower.said = follower.reconcile()

    assert said(follower) == [WORKS]
    assert follower.works
    assert fake.writes == []


def test_certificates_are_replaced_when_asked_for(fake):
    reconciled(fake)
    before = fake.find("Secret", f"{NAME}-tls", "kubeflow")["data"]
    fake.writes.clear()

    told = subject(fake).rotate()

    kinds = [each.split()[1] for each in fake.writes]
    trusted, shown = map(kinds.index, ("mutatingwebhookconfigurations", "secrets"))
    assert trusted < shown, "a server shows a certificate that API servers do not trust yet"
    after = fake.find("Secret", f"{NAME}-tls", "kubeflow")["data"]
    assert told["result"] == "certificates are replaced, the webhook answers"
    assert after["tls.crt"] != before["tls.crt"]
    assert after["previous.crt"] == before["tls.crt"]


def test_certificates_are_not_replaced_by_a_follower_or_without_an_image(fake):
    reconciled(fake)
    fake.writes.clear()

    with pytest.raises(errors.CharmError, match="only the leader"):
        subject(fake, changes={"leader": False}).rotate()
    with pytest.raises(errors.CharmError, match="nothing is replaced: waiting for the lifecycle"):
        subject(fake, image="").rotate()
    assert fake.writes == []


def test_without_a_webhook_there_are_no_certificates_to_replace(fake):
    part = reconciled(fake, mesh_mode="none")

    assert part.rotate() == {"result": "no webhook is in use, so there are no certificates"}


def test_removal_takes_the_configuration_before_its_servers(fake):
    reconciled(fake)
    fake.writes.clear()

    subject(fake).remove()

    kinds = [each.split()[1] for each in fake.writes]
    assert kinds[0] == "mutatingwebhookconfigurations"
    assert kinds_of_ours(fake) == set()


def kinds_of_ours(fake):
    return {
        obj["kind"]
        for obj in fake.objects.values()
        if obj["metadata"].get("labels", {}).get(names.OWNER) == "kubeflow.app"
    }
