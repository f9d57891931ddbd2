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
from tests.unit.charm import fake_cluster
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


def refuse(fake, message, code=403):
    """Have admission control of another team refuse every pod."""
    check = fake._check

    def checked(verb, key):
        check(verb, key)
        if (verb, key[1]) == ("create", "pods"):
            raise fake_cluster.StatusError(code, message)

    fake._check = checked


@pytest.fixture
def stuck(fake):
    """A webhook whose pods are not ready."""
    fake.webhook_is_ready = False
    assert said(reconciled(fake)) == [STARTING]
    return fake


@pytest.mark.parametrize("answers", [True, False])
def test_webhook_is_asked_once_its_pods_are_ready(stuck, answers):
    hooks = [each for _, kind, _, each in stuck.objects if kind == "mutatingwebhookconfigurations"]
    assert hooks == []
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


def pods_wait(reason, message=""):
    def wait(fake):
        labels = {names.COMPONENT: "admission-webhook", names.OWNER: "kubeflow.app"}
        metadata = {"name": "server", "namespace": "kubeflow", "labels": labels}
        waiting = {"waiting": {"reason": reason, "message": message}}
        status = {"containerStatuses": [{"name": "admission", "state": waiting}]}
        fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status})

    return wait


def pods_are_not_scheduled(fake):
    labels = {names.COMPONENT: "admission-webhook", names.OWNER: "kubeflow.app"}
    metadata = {"name": "server", "namespace": "kubeflow", "labels": labels}
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu.",
    }
    status = {"conditions": [condition]}
    fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status})


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
OBSTACLES = [
    pytest.param(
        pods_wait("ImagePullBackOff", "Back-off pulling image"),
        "webhook pods: ImagePullBackOff",
        "Back-off pulling image",
        id="image",
    ),
    pytest.param(
        pods_wait("CrashLoopBackOff"), "webhook pods: CrashLoopBackOff", "", id="crashing"
    ),
    pytest.param(
        pods_are_not_scheduled,
        "webhook pods: Unschedulable",
        "1 Insufficient cpu.",
        id="unschedulable",
    ),
    pytest.param(
        pods_are_refused(QUOTA),
        "ResourceQuota small rejects pods",
        "requested: pods=1",
        id="quota",
    ),
    pytest.param(
        pods_are_refused(SECURITY),
        "Pod Security restricted:latest rejects pods",
        "unrestricted capabilities",
        id="pod-security",
    ),
    pytest.param(
        pods_are_refused(DENIED),
        'webhook "validate.kyverno.svc-fail" rejects pods',
        "no registry of ours",
        id="webhook",
    ),
    pytest.param(
        pods_are_refused("no image was found"),
        "FailedCreate rejects pods",
        "no image was found",
        id="anything",
    ),
]


@pytest.mark.parametrize(("trouble", "what", "words"), OBSTACLES)
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
    pods_wait(reason)(stuck)

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


@pytest.mark.parametrize(
    ("options", "labels", "needs"),
    [
        pytest.param({}, {}, True, id="the-model-is-to-join"),
        pytest.param({"mesh_mode": "none"}, {}, False, id="nothing"),
        pytest.param(
            {"mesh_mode": "none"}, {"istio-injection": "enabled"}, True, id="joined-already"
        ),
        pytest.param({"included_pods": "a=b"}, {}, True, id="included-pods"),
        pytest.param({"mesh_mode": "none", "excluded_pods": "a=b"}, {}, True, id="excluded"),
        pytest.param({"mesh_mode": "none", "pod_labels": "{a: b}"}, {}, True, id="labels"),
        pytest.param(
            {"mesh_mode": "none", "pod_annotations": "{a: b}"}, {}, True, id="annotations"
        ),
        pytest.param({"mesh_mode": "none", "excluded_outbound_ports": "80"}, {}, True, id="ports"),
        pytest.param(
            {
                "mesh_mode": "none",
                "image_registries": "[{pods: a, prefixes: {docker.io: b.io}}]",
            },
            {},
            True,
            id="registries",
        ),
    ],
)
def test_webhook_runs_while_pods_get_something(fake, options, labels, needs):
    fake.labels("kubeflow").update(labels)

    part = reconciled(fake, **options)

    assert said(part) == [WORKS if needs else NOT_NEEDED]
    assert bool(kinds_of_ours(fake)) is needs


@pytest.mark.parametrize(
    ("labels", "needs"),
    [
        pytest.param({"istio-injection": "enabled"}, True, id="sidecars"),
        pytest.param({"istio.io/rev": "x"}, True, id="revision"),
        pytest.param({"istio-injection": "disabled"}, False, id="outside"),
        pytest.param(
            {"istio-injection": "enabled", names.SERVED_BY: "other.app"}, False, id="another's"
        ),
    ],
)
def test_webhook_runs_while_a_profile_gets_sidecars(fake, labels, needs):
    metadata = {"app.kubernetes.io/part-of": "kubeflow-profile", **labels}
    fake.namespace("alice")["metadata"]["labels"].update(metadata)

    reconciled(fake, mesh_mode="none")

    assert bool(kinds_of_ours(fake)) is needs


def test_profile_that_is_being_deleted_needs_no_webhook(fake):
    metadata = fake.namespace("alice")["metadata"]
    metadata["labels"]["app.kubernetes.io/part-of"] = "kubeflow-profile"
    metadata["labels"]["istio-injection"] = "enabled"
    metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert said(reconciled(fake, mesh_mode="none")) == [NOT_NEEDED]


def test_webhook_goes_when_it_is_needed_no_more(fake):
    reconciled(fake)
    assert kinds_of_ours(fake)

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
    authority, leaf = map(kinds.index, ("mutatingwebhookconfigurations", "secrets"))
    assert authority < leaf, "a server shows a leaf of an authority that nobody trusts yet"
    after = fake.find("Secret", f"{NAME}-tls", "kubeflow")["data"]
    assert told["result"] == "certificates are replaced, the webhook answers"
    assert {after["ca.crt"], after["tls.crt"]}.isdisjoint({before["ca.crt"], before["tls.crt"]})
    assert after["previous-ca.crt"] == before["ca.crt"]


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
