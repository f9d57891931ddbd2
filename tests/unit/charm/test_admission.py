"""Which backend changes new pods, how long it is waited for, and what is said meanwhile."""

import dataclasses
import json

import ops
import pytest

from integrator_contract import names
from istio_integrator.admission import admission
from istio_integrator.kube import errors
from istio_integrator.mesh import installation
from tests.unit.charm.lifecycle import world

NAME = "app-admission"


class Time:
    """Passes when somebody sleeps, and a little whenever it is asked for."""

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


def said(choice):
    return [(type(each), each.message) for each in choice.statuses()]


def serve(fake):
    """Have the webhook's servers answer what they would."""
    settings = fake.find("ConfigMap", NAME, "kubeflow")["data"]["settings.json"]
    revision = settings.partition('"revision": "')[2].partition('"')[0]
    service = fake.find("Service", NAME, "kubeflow")
    service["behaviour"] = {"alive": True, "injected_annotations": {names.SETTINGS: revision}}


@pytest.fixture
def started(fake):
    """A webhook whose pods are ready, and which nobody asks yet."""
    fake.labels("kubeflow")["kubernetes.io/metadata.name"] = "kubeflow"
    choice = subject(fake, admission="webhook")
    choice.reconcile()
    assert said(choice) == [(ops.WaitingStatus, "admission: the webhook's pods are starting")]
    fake.find("Deployment", NAME, "kubeflow")["status"] = {"readyReplicas": 1}
    return fake


def test_policy_is_tried_until_the_api_server_has_noticed_it(fake):
    fake.policies_work = False
    time = Time(wakes={2: lambda: setattr(fake, "policies_work", True)})
    choice = subject(fake, time)

    choice.reconcile()

    assert said(choice) == [(ops.ActiveStatus, "policy")]
    assert len(time.slept) == 2


def test_policy_that_is_as_it_was_is_not_waited_for(fake):
    subject(fake).reconcile()
    fake.policies_work = False
    time = Time()

    subject(fake, time, admission="policy").reconcile()

    assert time.slept == []


def test_probes_that_take_long_are_few(fake):
    fake.policies_work = False
    quick, slow = Time(), Time(passes=admission.PROBE_SECONDS * 0.4)

    for time in (quick, slow):
        fake.delete("MutatingAdmissionPolicy", "istio-integrator.kubeflow.app")
        choice = subject(fake, time, admission="policy")
        choice.reconcile()

    assert quick.slept == sorted(admission.PROBE_DELAYS)
    assert quick.slept[0] > 0
    assert 0 < len(slow.slept) < len(quick.slept)
    problem = "admission: a dry-run pod came back unchanged; set admission=auto or "
    assert said(choice) == [(ops.BlockedStatus, f"{problem}admission=webhook")]


MESH = installation.Mesh(
    namespace="istio-system", revision="x", is_default=False, probed=True, native_sidecars=True
)


@pytest.mark.parametrize("backend", ["policy", "webhook"])
@pytest.mark.parametrize(
    "mesh",
    [
        pytest.param(dataclasses.replace(MESH, probed=False, native_sidecars=False), id="away"),
        pytest.param(None, id="gone"),
    ],
)
def test_new_pods_get_what_they_got_while_the_mesh_can_not_be_asked(fake, backend, mesh):
    subject(fake, admission=backend, changes={"mesh": MESH}).reconcile()
    fake.writes.clear()

    subject(fake, admission=backend, changes={"mesh": mesh}).reconcile()

    assert fake.writes == []


def test_webhook_is_tried_until_the_api_server_asks_it(started):
    time = Time(wakes={1: lambda: serve(started)})
    choice = subject(started, time, admission="webhook")

    choice.reconcile()

    assert said(choice) == [(ops.ActiveStatus, "webhook")]
    assert len(time.slept) == 1


def test_webhook_that_does_not_answer_is_waited_for_and_named(started):
    choice = subject(started, admission="webhook")

    choice.reconcile()

    ((kind, message),) = said(choice)
    assert kind is ops.WaitingStatus
    assert message.startswith("admission: the webhook does not answer yet: Internal error: failed")


@pytest.mark.parametrize(
    ("options", "broken"),
    [
        pytest.param({"admission": "webhook"}, {}, id="the-webhook-is-asked-for"),
        pytest.param(
            {"hold_application": False},
            {("patch", "mutatingadmissionpolicies"): 422},
            id="a-new-policy-is-refused",
        ),
    ],
)
def test_one_backend_is_left_once_it_works(started, options, broken):
    subject(started).reconcile()
    assert started.find("MutatingAdmissionPolicy", "istio-integrator.kubeflow.app")
    assert started.find("Deployment", NAME, "kubeflow") is None

    started.broken.update(broken)
    choice = subject(started, **options)
    choice.reconcile()
    assert started.find("MutatingAdmissionPolicy", "istio-integrator.kubeflow.app")
    started.find("Deployment", NAME, "kubeflow")["status"] = {"readyReplicas": 1}
    serve(started)
    choice.reconcile()

    assert said(choice) == [(ops.ActiveStatus, "webhook")]
    assert started.find("MutatingAdmissionPolicy", "istio-integrator.kubeflow.app") is None


@pytest.mark.parametrize(
    ("trouble", "problem"),
    [
        pytest.param(
            lambda fake: fake.absent.add("mutatingadmissionpolicies"),
            "the cluster serves no MutatingAdmissionPolicy",
            id="no-api",
        ),
        pytest.param(
            lambda fake: fake.broken.update({("patch", "mutatingadmissionpolicies"): 422}),
            "the policy is refused: the server says no",
            id="refused",
        ),
        pytest.param(
            lambda fake: fake.broken.update({("create", "pods"): 500}),
            "the server says no",
            id="no-probe",
        ),
    ],
)
def test_why_the_policy_does_not_work_is_said_where_it_is_asked_for_alone(fake, trouble, problem):
    trouble(fake)
    choice = subject(fake, admission="policy")

    choice.reconcile()

    hint = "set admission=auto or admission=webhook"
    assert said(choice) == [(ops.BlockedStatus, f"admission: {problem}; {hint}")]
    assert fake.find("Deployment", NAME, "kubeflow") is None


@pytest.mark.parametrize("backend", ["policy", "webhook"])
def test_missing_right_to_try_a_pod_is_no_trouble_of_the_backend(started, backend):
    started.forbidden.add(("create", "pods"))

    with pytest.raises(errors.ForbiddenError):
        subject(started, admission=backend).reconcile()


def test_policy_is_of_the_version_that_is_served(fake):
    fake.absent.add("admissionregistration.k8s.io/v1")
    choice = subject(fake)

    choice.reconcile()

    assert said(choice) == [(ops.ActiveStatus, "policy")]


@pytest.mark.parametrize("left_alone", [True, False])
def test_pods_of_a_model_that_is_left_alone_are_its_members_and_no_more(fake, left_alone):
    if left_alone:
        fake.labels("kubeflow")[names.LIFECYCLE] = "disabled"
    subject(fake, admission="webhook").reconcile()

    settings = json.loads(fake.find("ConfigMap", NAME, "kubeflow")["data"]["settings.json"])
    assert settings["lifecycle-in-model"] is not left_alone


@pytest.mark.parametrize("hold", [True, False])
def test_profiles_are_the_policys_only_while_their_pods_get_something(fake, hold):
    subject(fake, hold_application=hold).reconcile()

    bound = {name.rpartition(".")[2] for _, kind, _, name in fake.objects if "binding" in kind}
    assert "model" in bound
    assert ("profiles" in bound) is hold


def test_follower_says_which_backend_works_and_writes_nothing(fake):
    follower = subject(fake, changes={"leader": False})
    follower.reconcile()
    assert said(follower) == [(ops.WaitingStatus, "admission: waiting for the leader")]
    assert fake.writes == []

    subject(fake).reconcile()
    fake.writes.clear()
    follower.reconcile()

    assert said(follower) == [(ops.ActiveStatus, "policy")]
    assert fake.writes == []


def test_certificates_are_replaced_when_asked_for(started):
    subject(started, admission="webhook").reconcile()
    serve(started)
    before = started.find("Secret", f"{NAME}-tls", "kubeflow")["data"]
    started.writes.clear()

    told = subject(started, admission="webhook").rotate()

    kinds = [each.split()[1] for each in started.writes]
    authority, leaf = map(kinds.index, ("mutatingwebhookconfigurations", "secrets"))
    assert authority < leaf, "a server shows a leaf of an authority that nobody trusts yet"
    after = started.find("Secret", f"{NAME}-tls", "kubeflow")["data"]
    assert told["result"] == "certificates are replaced, the webhook answers"
    assert {after["ca.crt"], after["tls.crt"]}.isdisjoint({before["ca.crt"], before["tls.crt"]})
    assert after["previous-ca.crt"] == before["ca.crt"]


def test_certificates_are_not_replaced_by_a_follower_or_without_an_image(started):
    subject(started, admission="webhook").reconcile()
    started.writes.clear()

    with pytest.raises(errors.CharmError, match="only the leader"):
        subject(started, admission="webhook", changes={"leader": False}).rotate()
    with pytest.raises(errors.CharmError, match="nothing is replaced: waiting for the name"):
        subject(started, admission="webhook", image="").rotate()
    assert started.writes == []


def test_without_a_webhook_there_are_no_certificates_to_replace(fake):
    choice = subject(fake)
    choice.reconcile()

    assert choice.rotate() == {"result": "no webhook is in use, so there are no certificates"}


def test_trouble_with_one_backend_does_not_keep_the_other_from_being_removed(started):
    subject(started, admission="policy").reconcile()
    subject(started, admission="webhook").reconcile()
    started.broken[("delete", "deployments")] = 500
    choice = subject(started, admission="webhook")

    with pytest.raises(errors.ApiError):
        choice.remove()

    assert {"Deployment"} <= kinds_of_ours(started)
    assert "MutatingAdmissionPolicy" not in kinds_of_ours(started)
    del started.broken[("delete", "deployments")]
    choice.remove()
    assert kinds_of_ours(started) == set()


def kinds_of_ours(fake):
    return {
        obj["kind"]
        for obj in fake.objects.values()
        if obj["metadata"].get("labels", {}).get(names.OWNER) == "kubeflow.app"
    }
