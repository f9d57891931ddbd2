"""Reactions of the charm to other teams' policies that the workload found."""

import json

import msgspec
import pytest

from integrator_contract import names
from integrator_contract.refusals import KUBE_APISERVER, SOME_WEBHOOK, Refusal
from integrator_contract.rejections import KEY, Rejections
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import state, status
from tests.unit.charm.diagnosis.world import diagnose

POLICY = Refusal(author="ValidatingAdmissionPolicy no-istio-overrides", words="not allowed here")
WEBHOOK = Refusal(author='webhook "validate.kyverno.svc-fail"', words="nobody outside")
LONG = Refusal(author="webhook " + "x" * 200, words="no")
DEEP = '{"unknown": ' + "[" * 9999
COMMAND = "run: juju config mesh-2 hold-application=false"


@pytest.fixture
def found(ctx, fake):
    """Write the workload's findings."""
    fake_cluster.install_istio(fake)

    def write(text="", **found):
        labels = names.make_labels("kf", "mesh-2", "convergence")
        text = text or msgspec.json.encode(Rejections(**found)).decode()
        fake.put("ConfigMap", "mesh-2-convergence", labels=labels, data={KEY: text})

    return write


def left_out(fake):
    data = fake.find("ConfigMap", "mesh-2-admission", "kf")["data"]
    return json.loads(data["settings.json"])["left-out"]


@pytest.mark.parametrize("refusal", [POLICY, WEBHOOK, LONG])
def test_change_that_a_policy_forbids_is_left_out_and_its_author_named(ctx, fake, found, refusal):
    # The webhook's ConfigMap is an object of this charm, too.
    status(ctx, state())
    webhook(fake, "all.example")
    found(changes={"hold": refusal})
    said = status(ctx, state())
    assert left_out(fake) == ["hold"]
    assert said.name == "blocked"
    assert COMMAND in said.message[:100]
    assert refusal.author[:50] in said.message[:100]
    assert f"{refusal.author} forbids hold on pods, so it is left out" in said.message


@pytest.mark.parametrize("text", ["[]", "{", '{"changes": {"hold": "no"}}', DEEP])
def test_what_can_not_be_read_leaves_nothing_out(ctx, fake, found, text):
    found(text)
    assert status(ctx, state()).name == "active"
    assert left_out(fake) == []


OPTIONS = {
    "hold": "hold-application=false",
    "native": "job-sidecars=classic",
    "ports": "excluded-outbound-ports=",
    "annotations": "pod-annotations=",
    "labels": "pod-labels=",
    "images": "image-registries=",
    "pod-traffic": "pod-networks=none",
    "idle-timeout": "pod-networks=none",
}


def test_diagnosis_names_who_forbids_and_what_to_do(ctx, fake, found):
    found(changes={**dict.fromkeys(OPTIONS, POLICY), "excluded": WEBHOOK})
    rows = diagnose(ctx, "rejections")
    assert {row.message for row in rows} == {"CHANGE_FORBIDDEN"}
    changes = sorted((*OPTIONS, "excluded"))
    for row, change in zip(rows, changes, strict=True):
        refusal = WEBHOOK if change == "excluded" else POLICY
        assert f"{refusal.author} forbids {change} on pods" in row.seen
        assert f"{refusal.words}; or exempt the namespace kf from it" in row.seen
        look = "kubectl get validatingwebhookconfigurations"
        option = OPTIONS.get(change)
        assert row.next.startswith(f"juju config mesh-2 {option}" if option else look)
    status(ctx, state())
    assert left_out(fake) == changes


def test_diagnosis_names_workloads_without_pods_modeloperator_first(ctx, found):
    names_of = ("Deployment/a-modeloperator", "Deployment/modeloperator", "StatefulSet/a")
    found(workloads=dict.fromkeys(reversed(names_of), WEBHOOK))
    rows = diagnose(ctx, "rejections")
    assert {row.message for row in rows} == {"PODS_REJECTED"}
    for row, name in zip(rows, (names_of[1], names_of[0], names_of[2]), strict=True):
        author = 'webhook "validate.kyverno.svc-fail"'
        assert row.seen == f"new pods of {name} are rejected: {author} refuses: nobody outside"
        assert row.next == f"kubectl -n kf describe {name}"


def webhook(fake, name, resources=("pods",), **selector):
    rule = {"operations": ["CREATE"], "apiGroups": [""], "resources": [*resources]}
    use = {"key": "azure.workload.identity/use", "operator": "Exists"}
    selectors = {"namespaceSelector": selector, "objectSelector": {"matchExpressions": [use]}}
    other = {**rule, "resources": ["persistentvolumeclaims"]}
    listed = [{"name": name, "rules": [other, rule], **selectors}]
    fake.put("MutatingWebhookConfiguration", f"z-{name}", None, webhooks=listed)


def test_webhooks_that_may_have_dropped_a_field_are_named(ctx, fake, found):
    webhook(fake, "mutation.azure-workload-identity.io", resources=["jobs", "pods"])
    webhook(fake, "every.example", resources=["*/*"])
    webhook(fake, "a.istio.io")
    unmarked = {"key": "skip", "operator": "DoesNotExist"}
    webhook(fake, "all.example", resources=["*"], matchExpressions=[unmarked])
    webhook(fake, "claims.example", resources=["persistentvolumeclaims"])
    of_profiles = {"model.juju.is/name": "kf", names.PART_OF: names.PROFILE}
    webhook(fake, "profiles.example", matchLabels=of_profiles)
    # This charm's own webhook is there in the second hook, for the namespace of this name.
    fake.labels("kf")[names.NAMESPACE_NAME] = "kf"
    status(ctx, state())
    found(changes={"native": Refusal(author=SOME_WEBHOOK, words="it removes restartPolicy")})
    said = status(ctx, state())
    assert left_out(fake) == ["native"]
    assert "webhook all.example, every.example, mutation.azure-w" in said.message[:120]
    (row,) = diagnose(ctx, "rejections")
    assert "it removes restartPolicy" in row.seen
    assert "istio" not in row.seen
    assert row.next == "juju config mesh-2 job-sidecars=classic"
    for each in ("mutation.azure-workload-identity.io", "every.example", "all.example"):
        fake.delete("MutatingWebhookConfiguration", f"z-{each}")
    assert SOME_WEBHOOK in status(ctx, state()).message


def test_change_that_makes_pods_invalid_has_no_policy_to_be_exempt_from(ctx, fake, found):
    found(changes={"native": Refusal(author=KUBE_APISERVER, words="spec.containers[1].name")})
    said = status(ctx, state())
    assert said.message.startswith("run: juju config mesh-2 job-sidecars=classic; kube-apiserver ")
    assert said.message.endswith("spec.containers[1].name")


def test_event_of_a_refusal_that_is_named_already_is_not_repeated(ctx, fake, found):
    kind, name = POLICY.author.split()
    denied = f"Error creating: {kind} '{name}' with binding 'b' denied request"
    fake.namespace("kf-user", **{names.PART_OF: names.PROFILE})
    for namespace, job, words, reason in (
        ("kf", "train-1", POLICY.words, "FailedCreate"),
        ("kf", "train-2", "another rule", "FailedCreate"),
        ("kf", "train-3", "a third", "FailedMount"),
        ("kf-user", "train-1", POLICY.words, "FailedCreate"),
    ):
        about = {"kind": "Job", "name": job, "namespace": namespace}
        event = {"reason": reason, "message": f"{denied}: {words}"}
        fake.put("Event", f"{job}.1", namespace, involvedObject=about, **event)
    found(changes={"native": POLICY})
    change, *events = diagnose(ctx, "rejections")
    assert change.message == "CHANGE_FORBIDDEN"
    assert [each.seen.partition(" were rejected: ")[0] for each in events] == [
        "pods of kf/train-2",
        "pods of kf-user/train-1",
    ]


def test_workload_that_can_not_have_a_sidecar_is_named(ctx, found):
    apiserver = Refusal(author=KUBE_APISERVER, words="spec.resources")
    found(sidecars={"Job/train-3": POLICY, "Job/train-2": apiserver})
    said = status(ctx, state())
    assert said.name == "blocked"
    assert said.message.startswith(
        "kube-apiserver rejects Job/train-2 with a sidecar; "
        "run: kubectl -n kf describe Job/train-2; +1 more; spec.resources"
    )
    status(ctx, state(mesh_mode="none"))
    assert "Job/train-2 with a sidecar" in status(ctx, state(mesh_mode="none")).message
    rows = diagnose(ctx, "rejections")
    assert [row.message for row in rows] == ["SIDECAR_REJECTED"] * 2
    assert f"{POLICY.author} rejects Job/train-3" in rows[1].seen
    assert POLICY.words in rows[1].seen


def test_native_sidecars_that_a_policy_forbids_are_still_tried(ctx, fake, found):
    """The dry run of the charm itself is refused, and the workload finds when that ends."""
    found(changes={"hold": POLICY})
    fake.put("Node", "a", None, status={"nodeInfo": {"kubeletVersion": "v1.36.3"}})
    denied = "ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no"
    fake.deny("Pod", 403, denied, having=names.NATIVE_SIDECAR)
    status(ctx, state())
    assert sorted(left_out(fake)) == ["hold", "native"]
    fake.validators.clear()
    status(ctx, state())
    assert left_out(fake) == ["hold"]
    settings = fake.find("ConfigMap", "mesh-2-admission", "kf")["data"]
    assert json.loads(settings["settings.json"])["native"] is True
