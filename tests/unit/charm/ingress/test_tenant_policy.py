"""The tenant policy in the life of an application, also where Kubernetes has no such policies.

What it rejects is tested on a real API server in tests/functional/test_tenant_policy.py.
"""

import json

import pytest

from integrator_contract import names
from integrator_contract.seen import Cause, EnvoyState, MissingPart
from tests import asked
from tests.unit.cases import cases
from tests.unit.charm import ingress_world
from tests.unit.charm.ingress_world import HOST, LABELS, World, auth, route

NAME = "istio-integrator.kf.mesh-2.tenants"


@pytest.fixture
def world(fake, monkeypatch):
    ingress_world.connect(fake, monkeypatch)
    return World(fake, route(), auth())


def policies(world):
    kinds = "validatingadmissionpolic"
    return [name for _, plural, _, name in world.fake.objects if plural.startswith(kinds)]


def variables(world):
    """Return the expressions of the policy's variables, by their names."""
    listed = world.fake.find("ValidatingAdmissionPolicy", NAME)["spec"]["variables"]
    return {each["name"]: each["expression"] for each in listed}


@pytest.mark.parametrize(
    ("given", "actions"), [("auto", ["Deny"]), ("enforce", ["Deny"]), ("warn", ["Warn", "Audit"])]
)
def test_policy_comes_with_the_ingress_and_goes_with_it(world, given, actions):
    world.config |= {"tenant_policy": given, "hosts": f"{HOST},ml.example.com"}
    world.fake.put("Pod", "web-0", "istio-ingress", labels={"app": "web-2"}, spec={})
    ingress_world.pod_of(world.fake, of="canary-9", name="canary-0")
    world.run(leader=False)
    assert policies(world) == []
    world.run()
    kind = "ValidatingAdmissionPolicyBinding"
    profiles = world.fake.find(kind, f"{NAME}.profiles")
    assert profiles["spec"]["validationActions"] == actions
    # The charm's own dry runs, which it has to see refused.
    assert world.fake.find(kind, f"{NAME}.model")["spec"]["validationActions"] == ["Deny"]
    selected = [f"{key}={value}" for key, value in sorted(LABELS.items())]
    # Labels that the gateway's pods have and its selector has not.
    labels = [*selected, "pod-template-hash=5", "pod-template-hash=9"]
    found = map(variables(world).get, ("hosts", "gatewaySelector", "gatewayLabels"))
    assert [*map(json.loads, found)] == [[HOST, "ml.example.com"], selected, labels]
    policy = world.fake.find("ValidatingAdmissionPolicy", NAME)
    assert '"istio-ingressgateway.istio-ingress."' in str(policy["spec"]["validations"])
    assert policy["spec"]["failurePolicy"] == "Fail"
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    assert [each["operations"] for each in rules] == [["CREATE", "UPDATE"]] * 3
    world.config["tenant_policy"] = "off" if given == "warn" else given
    world.related = world.related if given == "warn" else []
    world.run()
    assert policies(world) == []


@cases(
    ("prefixes", "gone"),
    none_of_them=(["/", "/notebooks", "/jupyter/notebook/", "/users"], set()),
    below_a_word=(["/user/profile", "/serving/"], {"user", "serving"}),
    around_words=(
        ["/pvcviewer", "/tensor", "/notebook"],
        {"pvcviewer", "pvcviewers", "tensorboard", "notebook"},
    ),
)
def test_path_of_an_application_is_no_path_of_a_namespace(world, prefixes, gone):
    world.related = [*(route(f"app-{n}", prefix=each) for n, each in enumerate(prefixes)), auth()]
    world.run()
    path = variables(world)["path"]
    words = {"notebook", "tensorboard", "pvcviewer", "pvcviewers", "serving", "user"}
    assert set(path.partition("(")[2].partition(")")[0].split("|")) == words - gone


def owner(group):
    return {"apiVersion": f"{group}/v1", "kind": "X", "name": "x", "controller": True}


KNATIVE, KUBEFLOW = owner("networking.internal.knative.dev"), owner("kubeflow.org")
LEVELS = (
    ([], "3"),
    ([KUBEFLOW], "2"),
    ([KNATIVE], "1"),
    ([owner("serving.kserve.io")], "1"),
    ([owner("knative.dev.example.com")], "2"),
    ([{**KNATIVE, "controller": False}], "3"),
    ([{**KNATIVE, "controller": False}, KUBEFLOW], "2"),
)
"""Owners of an object, and how strictly it is judged."""
API, ISTIO = "gateway.networking.k8s.io/v1", "networking.istio.io/v1"
ELSEWHERE, TO_US = {"gateways": ["shop/web"]}, {"gateways": ["kf/kubeflow-gateway"]}
OUR_PARENT = {"parentRefs": [{"name": "kubeflow-gateway", "namespace": "kf"}]}
DENIED = {
    "here": f"ValidatingAdmissionPolicy '{NAME}' with binding '{NAME}.model' denied request: no",
    "by-a-webhook": 'admission webhook "a.b" denied the request: no',
    "by-a-schema": "is invalid",
}


@pytest.fixture
def tried(world):
    """What the charm tests by dry runs; annotations say who denies it."""
    found = []

    def deny(obj):
        metadata = obj["metadata"]
        labels, notes = metadata.get("labels", {}), metadata.get("annotations", {})
        if names.TENANT not in labels:
            return None
        about = labels[names.TENANT], labels[names.TENANT_LEVEL], obj["spec"], notes
        found.append((obj["kind"], obj["apiVersion"], *about))
        return (422, DENIED[notes["denied"]]) if notes else None

    world.fake.validators.append(deny)
    asked.SERVICE.seen = EnvoyState(of="")
    yield found
    asked.SERVICE.seen = EnvoyState(of="")


def broken(caplog):
    """Return the messages about objects that break the policy."""
    found = [each.getMessage() for each in caplog.records if each.name == "charm"]
    return [each for each in found if "breaks tenant-policy" in each]


def test_objects_of_tenants_are_judged_by_their_authors_and_named(world, tried, caplog):
    world.fake.namespace("kf-user", **{"app.kubernetes.io/part-of": "kubeflow-profile"})
    world.fake.put("VirtualService", "of-the-model", spec=ELSEWHERE)
    for at, (owners, _) in enumerate(LEVELS):
        spec = {"hosts": [f"h{at}"]}
        world.fake.put("VirtualService", f"v{at}", "kf-user", ownerReferences=owners, spec=spec)
    here = [(kind, ISTIO, "here") for kind in ("DestinationRule", "Gateway")]
    here += [(kind, API, "here") for kind in ("HTTPRoute", "GRPCRoute", "Gateway")]
    denied = [*here, ("Gateway", API, "by-a-webhook"), ("HTTPRoute", API, "by-a-schema")]
    for kind, version, by in denied:
        notes = {"denied": by}
        world.fake.put(kind, by, "kf-user", api_version=version, annotations=notes, spec=notes)
    world.hook()
    routed = [(*each[3:5],) for each in tried if each[0] == "VirtualService"]
    assert routed == [(level, {"hosts": [f"h{at}"]}) for at, (_, level) in enumerate(LEVELS)]
    others = [each for each in tried if each[0] != "VirtualService"]
    want = [(*each[:2], "kf-user", "3", *[{"denied": each[2]}] * 2) for each in denied]
    assert sorted(others, key=str) == sorted(want, key=str)
    assert broken(caplog) == [
        f"blocked: {kind} kf-user/here breaks tenant-policy; run: kubectl -n kf-user delete "
        f"{kind.lower()}s.{version.removesuffix('/v1')} here; no."
        for kind, version, _ in here
    ]
    caplog.clear()
    tried.clear()
    world.config["tenant_policy"] = "warn"
    for number in range(201 - len(LEVELS) - len(denied)):
        world.fake.put("VirtualService", f"more-{number}", "kf-user", spec={})
    world.hook()
    assert len(tried) == 200
    assert "passed over: it and others: tenants have more than 200" in caplog.text
    assert {each.partition(":")[0] for each in broken(caplog)} == {"active"}


def test_routes_of_another_team_are_judged_where_envoy_refuses_the_models(world, tried):
    world.fake.put("VirtualService", "far", "shop", spec=ELSEWHERE)
    world.fake.put("VirtualService", "near", "shop", spec=TO_US)
    world.fake.put("HTTPRoute", "near", "shop", spec=OUR_PARENT)
    world.run()
    missing = MissingPart(cause=Cause.HOST_TAKEN), MissingPart(cause=Cause.ROUTES_MISSING)
    for count in (1, 2):
        assert tried == []
        asked.SERVICE.seen = EnvoyState(of="", unseen=None, missing=missing[:count])
        world.hook()
    routes = ("VirtualService", ISTIO, TO_US), ("HTTPRoute", API, OUR_PARENT)
    assert tried == [(*each[:2], "shop", "0", each[2], {}) for each in routes]


def test_kubernetes_without_such_policies_is_a_note_unless_it_was_asked_for(world):
    world.fake.absent.update(("validatingadmissionpolicies", "validatingadmissionpolicybindings"))
    said = world.status()
    assert said.name == "active"
    assert "tenant-policy is off: it needs Kubernetes 1.30" in said.message
    assert world.routes()
    world.config["tenant_policy"] = "enforce"
    said = world.status()
    assert said.name == "blocked"
    command = "juju config mesh-2 tenant-policy=off"
    assert said.message == f"tenant-policy=enforce needs Kubernetes 1.30; run: {command}"
    assert world.routes()
    world.fake.absent.clear()
    world.fake.broken["patch", "validatingadmissionpolicies"] = 404
    assert world.status().name == "waiting"


def test_missing_right_is_named_and_everything_else_is_served(world):
    world.fake.forbidden.add(("list", "validatingadmissionpolicies"))
    assert "missing permission: list validatingadmissionpolicies" in world.status().message
    assert world.routes()
