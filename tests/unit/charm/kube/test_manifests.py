"""Labels and owners of the charm's objects, and objects of other owners."""

import dataclasses
import itertools
import pathlib

import pytest
from ops import testing

from integrator_contract import names
from tests.unit.cases import cases
from tests.unit.charm.charm_world import state, status

pytestmark = pytest.mark.usefixtures("installed")
NAME = "mesh-2-admission"
SETTINGS, SERVICE = ("ConfigMap", NAME, "kf"), ("Service", NAME, "kf")
WEBHOOK = ("MutatingWebhookConfiguration", "0-istio-integrator.kf.mesh-2")
ROLE = ("ClusterRole", "kf-mesh-2")


def owners_of(fake, kind, name, namespace=""):
    found = fake.find(kind, name, namespace)["metadata"].get("ownerReferences", ())
    return [(each["kind"], each["name"]) for each in found]


def label(**changes):
    """Return a change of the labels that Juju gave the role."""
    marks = {f"app.kubernetes.io/{key.replace('_', '-')}": changes[key] for key in changes}
    return lambda fake: fake.find(*ROLE)["metadata"]["labels"].update(marks)


@cases(
    ("change", "is_bound"),
    deployed=(lambda fake: None, True),
    no_role=(lambda fake: fake.delete(*ROLE), False),
    role_of_somebody_else=(label(managed_by="helm"), False),
    role_of_another_application=(label(name="mesh"), False),
    role_is_not_seen=(lambda fake: fake.forbidden.add(("get", "clusterroles")), False),
    role_is_not_written=(lambda fake: fake.forbidden.add(("patch", "clusterroles")), False),
)
def test_objects_bear_the_marks_of_their_owner_and_go_with_it(ctx, fake, change, is_bound):
    fake.application()
    other = {"apiVersion": "v1", "kind": "Node", "name": "kf", "uid": "of-the-node"}
    fake.find(*ROLE)["metadata"]["ownerReferences"] = [other]
    change(fake)
    status(ctx, state())
    assert fake.find(*SETTINGS)["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "istio-integrator",
        "istio-integrator.charmhub.io/owner": "kf.mesh-2",
        "istio-integrator.charmhub.io/component": "admission-webhook",
    }
    if is_bound:
        assert owners_of(fake, *SETTINGS) == owners_of(fake, *WEBHOOK) == [ROLE]
        assert owners_of(fake, *ROLE) == [("Node", "kf"), ("Namespace", "kf")]
    else:
        assert owners_of(fake, *SETTINGS) == [("Namespace", "kf")]
        assert owners_of(fake, *WEBHOOK) == [("Namespace", "kf")]
        assert not [each for each in fake.writes if "clusterroles" in each]
    (reference,) = fake.find(*WEBHOOK)["metadata"]["ownerReferences"]
    owner = fake.find(*(ROLE if is_bound else ("Namespace", "kf")))
    assert reference == {
        **{key: owner[key] for key in ("apiVersion", "kind")},
        **{key: owner["metadata"][key] for key in ("name", "uid")},
        "blockOwnerDeletion": False,
    }
    kinds = ("configmaps", "services", "networkpolicies", "poddisruptionbudgets", "deployments")
    assert [each for each in fake.writes if "clusterroles" not in each] == [
        "patch namespaces kf",
        "patch secrets mesh-2-admission-tls",
        *(f"patch {kind} {NAME}" for kind in kinds),
        "patch mutatingwebhookconfigurations 0-istio-integrator.kf.mesh-2",
        "patch namespaces kf",
    ]
    fake.writes.clear()
    status(ctx, state())
    assert fake.writes == []


def test_what_others_add_stays_and_what_they_change_is_repaired(ctx, fake):
    status(ctx, state())
    kept = fake.find(*SETTINGS)
    kept["metadata"]["labels"]["app.juju.is/created-by"] = "mesh-2"
    fake.writes.clear()
    status(ctx, state())
    assert fake.writes == []
    before, kept["data"]["settings.json"] = kept["data"]["settings.json"], "drifted"
    port = fake.find(*SERVICE)["spec"]["ports"].pop()
    (server,) = fake.find("Deployment", NAME, "kf")["spec"]["template"]["spec"]["containers"]
    server["command"][-1] = "--drifted"
    status(ctx, state())
    (server,) = fake.find("Deployment", NAME, "kf")["spec"]["template"]["spec"]["containers"]
    assert server["command"][-1].startswith("--log-level-file=")
    assert fake.find(*SETTINGS)["data"]["settings.json"] == before
    assert fake.find(*SERVICE)["spec"]["ports"] == [port]
    assert "app.juju.is/created-by" in fake.find(*SETTINGS)["metadata"]["labels"]


@cases(
    ("labels", "owner"),
    of_nobody=({}, "another tool"),
    of_another=({names.OWNER: "kf.app"}, "kf.app"),
    of_one_that_is_gone=({names.OWNER: "kf.gone"}, ""),
    of_a_model_that_is_gone=({names.OWNER: "other.app"}, ""),
)
def test_foreign_object_is_left_alone_while_its_owner_is_there(ctx, fake, labels, owner):
    for application in ("app", "mesh-2"):
        fake.application(application)
    kind, name, namespace = SERVICE
    fake.put(kind, name, namespace, api_version="v1", labels=labels, spec={})
    fake.may_change = set() if owner else {f"services {namespace} {name}"}
    said = status(ctx, state())
    found = fake.find(*SERVICE)
    if owner:
        assert f"{owner} has Service kf/{NAME}" in said.message
        assert (found["metadata"]["labels"], found["spec"]) == (labels, {})
        # None of the folder is written where one object of it is foreign.
        assert fake.find(*SETTINGS) is fake.find("Deployment", NAME, "kf") is None
    else:
        assert said.name == "active"
        assert found["metadata"]["labels"][names.OWNER] == "kf.mesh-2"


@pytest.mark.parametrize(
    ("model", "name"), [("m" * 60, "a" * 60), ("m" * 51, "a" * 20), ("m" * 51 + "-a", "app")]
)
def test_long_names_are_cut_and_their_owner_is_found(ctx, fake, model, name):
    """A label has 63 characters."""
    fake.namespace(model)
    fake.application(name, model)
    owner = names.name_owner(model, name)
    fake.put("Service", NAME, labels={names.OWNER: owner}, spec={})
    assert f"{owner} has Service kf/{NAME}" in status(ctx, state()).message
    fake.delete("StatefulSet", name, model)
    fake.may_change = {f"services kf {NAME}"}
    assert status(ctx, state()).name == "active"


@pytest.mark.parametrize("text", ["😀", "\x85\u2028", "{{ model }}", '"\\\n', "null"])
def test_text_of_an_option_is_the_text_of_the_object(ctx, fake, text):
    related = {testing.Relation("ingress", remote_app_name="a")}
    given = state(gateway_service_annotations=f"{{a.b/c: {ascii_yaml(text)}}}")
    for each, want in ((given, text), (state(), None)):
        ctx.run(ctx.on.config_changed(), dataclasses.replace(each, relations=related))
        service = fake.find("Service", "mesh-2-gateway", "kf")
        assert service["metadata"]["annotations"].get("a.b/c") == want


def ascii_yaml(text):
    """Write a text in YAML, each character by its number."""
    return '"' + "".join(f"\\U{ord(each):08x}" for each in text) + '"'


def test_every_template_names_its_kinds_where_prune_looks():
    """Prune reads kinds from lines, of which one has the version and the next one the kind."""
    for path in pathlib.Path("templates").rglob("*.yaml.j2"):
        lines = path.read_text().splitlines()
        above = [before for before, line in itertools.pairwise(lines) if line.startswith("kind: ")]
        assert above, path
        assert all(line.startswith("apiVersion: ") for line in above), path
