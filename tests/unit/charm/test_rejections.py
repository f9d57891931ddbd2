"""What the charm does and says about policies of other teams that the workload found."""

import json
import types

import msgspec
import ops
import pytest

from integrator_contract import names
from integrator_contract.refusals import Refusal
from integrator_contract.rejections import KEY, Rejections
from istio_integrator.admission import admission
from istio_integrator.admission import rejections as admission_rejections
from istio_integrator.diagnosis.checks import admission as checked
from istio_integrator.messages import Said
from tests import shown
from tests.unit.charm.lifecycle import world

POLICY = Refusal(author="ValidatingAdmissionPolicy no-istio-overrides", words="not allowed here")
WEBHOOK = Refusal(author='webhook "validate.kyverno.svc-fail"', words="nobody outside")


@pytest.fixture
def remembered(fake):
    """Have the workload write what it found."""

    def write(text):
        labels = names.labels("kubeflow", "app", "convergence")
        metadata = {"name": "app-convergence", "namespace": "kubeflow", "labels": labels}
        head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        fake.add({**head, "data": {KEY: text}})

    return write


def subject(fake):
    return admission.Admission(world.context(fake, admission="webhook"), lambda: "workload:1")


def written(fake):
    found = fake.find("ConfigMap", "app-admission", "kubeflow")["data"]["settings.json"]
    return json.loads(found)["left-out"]


def test_change_that_a_policy_forbids_is_left_out_and_its_author_named(fake, remembered):
    remembered(json.dumps({"changes": {"hold": {"author": POLICY.author, "words": "no"}}}))
    statuses = shown.statuses(subject(fake).reconcile())

    assert written(fake) == ["hold"]
    (said,) = [each for each in statuses if isinstance(each, ops.BlockedStatus)]
    assert (
        said.message == f"{POLICY.author} forbids hold on pods; run: juju run app/leader diagnose"
    )
    assert len(said.message) <= 100


@pytest.mark.parametrize("text", ["", "[]", "{", '{"changes": {"hold": "no"}}', "[" * 99])
def test_what_can_not_be_read_leaves_nothing_out(fake, remembered, text):
    remembered(text)
    subject(fake).reconcile()
    assert written(fake) == []


@pytest.mark.parametrize("author", [POLICY.author, WEBHOOK.author, "webhook " + "x" * 200])
def test_status_names_author_and_command_within_what_juju_shows(author):
    found = Rejections(changes={"hold": Refusal(author=author, words="no")})
    (said,) = admission_rejections.messages(found, application="istio-integrator")
    visible = said.status(application="istio-integrator").message[:100]
    assert "run: juju run istio-integrator/leader diagnose" in visible
    assert author[:50] in visible


@pytest.fixture
def judged(fake, remembered):
    """Have `diagnose` look at what the workload found."""

    def judge(**found):
        remembered(msgspec.json.encode(Rejections(**found)).decode())
        facts = types.SimpleNamespace(
            context=world.context(fake), cluster=fake.api(), model="kubeflow", application="app"
        )
        return list(checked.check_rejections(facts))

    return judge


def test_diagnosis_names_who_forbids_and_what_to_do(judged):
    hold, outside = judged(changes={"hold": POLICY, "excluded": WEBHOOK})[::-1]
    assert {hold.said, outside.said} == {Said.CHANGE_LEFT_OUT}
    assert (hold.about["author"], hold.about["change"]) == (POLICY.author, "hold")
    assert hold.command.endswith("juju config app hold-application=false")
    assert outside.command == "exempt the namespace kubeflow from it"


def test_diagnosis_names_workloads_without_pods_modeloperator_first(judged):
    names_of = ("Deployment/minio", "Deployment/modeloperator", "StatefulSet/a")
    assert judged(workloads=dict.fromkeys(names_of, WEBHOOK)) == [
        Said.PODS_REJECTED(workload=each, refusal=WEBHOOK, namespace="kubeflow")
        for each in ("Deployment/modeloperator", "Deployment/minio", "StatefulSet/a")
    ]


def test_diagnosis_of_a_model_without_rejections_is_one_line(judged):
    assert judged() == [Said.PODS_NOT_REJECTED()]
