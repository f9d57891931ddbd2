"""Reactions of the charm to other teams' policies that the workload found."""

import json

import msgspec
import pytest

from integrator_contract import names
from integrator_contract.refusals import Refusal
from integrator_contract.rejections import KEY, Rejections
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import state, status
from tests.unit.charm.diagnosis.world import diagnose

POLICY = Refusal(author="ValidatingAdmissionPolicy no-istio-overrides", words="not allowed here")
WEBHOOK = Refusal(author='webhook "validate.kyverno.svc-fail"', words="nobody outside")
LONG = Refusal(author="webhook " + "x" * 200, words="no")
COMMAND = "run: juju run istio-integrator/leader diagnose"


@pytest.fixture
def found(ctx, fake):
    """Write the workload's findings."""
    fake_cluster.install_istio(fake)

    def write(text="", **found):
        labels = names.labels("kubeflow", "istio-integrator", "convergence")
        text = text or msgspec.json.encode(Rejections(**found)).decode()
        fake.put("ConfigMap", "istio-integrator-convergence", labels=labels, data={KEY: text})

    return write


def left_out(fake):
    data = fake.find("ConfigMap", "istio-integrator-admission", "kubeflow")["data"]
    return json.loads(data["settings.json"])["left-out"]


@pytest.mark.parametrize("refusal", [POLICY, WEBHOOK, LONG])
def test_change_that_a_policy_forbids_is_left_out_and_its_author_named(ctx, fake, found, refusal):
    found(changes={"hold": refusal})
    said = status(ctx, state())
    assert left_out(fake) == ["hold"]
    assert said.name == "blocked"
    assert COMMAND in said.message[:100]
    assert refusal.author[:50] in said.message[:100]
    assert f"{refusal.author} forbids hold on pods, so it is left out" in said.message


@pytest.mark.parametrize("text", ["[]", "{", '{"changes": {"hold": "no"}}', "[" * 99])
def test_what_can_not_be_read_leaves_nothing_out(ctx, fake, found, text):
    found(text)
    assert status(ctx, state()).name == "active"
    assert left_out(fake) == []


def test_diagnosis_names_who_forbids_and_what_to_do(ctx, found):
    found(changes={"hold": POLICY, "excluded": WEBHOOK})
    outside, hold = diagnose(ctx, "rejections")
    assert {hold.message, outside.message} == {"CHANGE_FORBIDDEN"}
    for row, refusal in ((hold, POLICY), (outside, WEBHOOK)):
        assert refusal.author in row.seen
        assert refusal.words in row.seen
        assert "exempt the namespace kubeflow from it" in row.seen
    assert hold.next == "juju config istio-integrator hold-application=false"
    assert outside.next.startswith("kubectl get validatingwebhookconfigurations")


def test_diagnosis_names_workloads_without_pods_modeloperator_first(ctx, found):
    names_of = ("Deployment/minio", "Deployment/modeloperator", "StatefulSet/a")
    found(workloads=dict.fromkeys(names_of, WEBHOOK))
    rows = diagnose(ctx, "rejections")
    assert {row.message for row in rows} == {"PODS_REJECTED"}
    for row, name in zip(rows, (names_of[1], names_of[0], names_of[2]), strict=True):
        assert name in row.seen
        assert WEBHOOK.author in row.seen
