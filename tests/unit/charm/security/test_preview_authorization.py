"""Who could no longer call whom with another value of `authorization`, before it is chosen."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops import testing

from istio_integrator.policies import decide, preview
from istio_integrator.situation.model import Pod, read
from tests.unit.charm import ambient_objects, fake_cluster, ingress_world
from tests.unit.charm.charm_world import state
from tests.unit.charm.diagnosis.objects import ALIVE
from tests.unit.charm.security import callers, members
from tests.unit.charm.security.callers import policy, sa
from tests.unit.charm.security.test_policies_charm import add_application, mesh
from tests.unit.charm.security.test_policies_properties import JSON

RELATE = "juju integrate minio:service-mesh istio-integrator:service-mesh"


@pytest.fixture
def fake(monkeypatch):
    found = fake_cluster.FakeCluster()
    found.namespace("kubeflow")
    ingress_world.connect(found, monkeypatch)
    for name, port in (("kfp-ui", 3000), ("kfp-api", 8888), ("minio", 9000)):
        add_application(found, name, port)
    for obj in found.objects.values():
        if obj["kind"] == "Pod" and obj["metadata"]["namespace"] == "kubeflow":
            obj["spec"]["serviceAccountName"] = obj["metadata"]["name"].removesuffix("-0")
    return found


RELATIONS = (mesh("kfp-api", policy("kfp-ui", "kfp-api")),)


def chosen(*more, **config):
    return dataclasses.replace(state(**config), relations={*RELATIONS, *more})


def asked(ctx, mode, *more, own="off", **params):
    options = chosen(*more, authorization=own)
    params = {"authorization": mode, **params}
    ctx.run(ctx.on.action("preview-security", params=params), options)
    return ctx.action_results["report"]


def lines(ctx, mode, *more, **options):
    found = json.loads(asked(ctx, mode, *more, format="json", **options))
    return [each for each in found if each["check"] == "authorization"]


def about(found, words):
    (line,) = (each for each in found if words in each["seen"])
    return line


def without_sidecar(fake, name):
    pod = fake.find("Pod", f"{name}-0", "kubeflow")
    pod["spec"]["containers"] = [{"name": "charm"}]


def test_applications_that_no_relation_names_are_said_by_whom_they_could_not_call(ctx, fake):
    found = lines(ctx, "related")
    line = about(found, "could no longer call kfp-api")
    assert line["level"] == "doubtful"
    assert line["seen"] == (
        "minio, pods of other namespaces and whoever is outside of the mesh could no longer call "
        "kfp-api:8888"
    )
    assert "relate the caller to kfp-api" in line["next"]
    assert not [each for each in found if "could no longer call minio" in each["seen"]]


def test_closed_model_names_whom_nobody_could_call_and_its_relation(ctx, fake):
    line = about(lines(ctx, "closed"), "could no longer call minio")
    assert line["seen"].startswith("kfp-api, kfp-ui, pods of other namespaces and whoever is")
    assert RELATE in line["next"]
    assert "authorization=off" in line["next"]
    assert about(lines(ctx, "closed"), "let nobody call")["seen"].count("minio-0") == 1


def test_caller_that_is_named_and_has_no_sidecar_is_lost(ctx, fake):
    without_sidecar(fake, "kfp-ui")
    line = about(lines(ctx, "related"), "kfp-ui may call by a relation and can't")
    assert line["level"] == "broken"
    assert line["next"] == "juju run istio-integrator/leader list-uninjected"


def test_caller_that_no_policy_can_name_is_said_to_have_no_sidecar(ctx, fake):
    without_sidecar(fake, "minio")
    line = about(lines(ctx, "related"), "could no longer call kfp-api")
    assert line["seen"].startswith("minio (without a sidecar), pods of other")


def test_every_caller_is_named_however_many_there_are(ctx, fake):
    names = [f"caller-{number}" for number in range(8)]
    for number, name in enumerate(names):
        add_application(fake, name, 7000 + number)
    seen = about(lines(ctx, "related"), "could no longer call kfp-api")["seen"]
    assert [name for name in names if name not in seen] == []


def test_whoever_would_be_let_in_under_a_condition_alone_is_named(ctx, fake):
    when = [{"key": "request.headers[kubeflow-userid]", "notValues": ["*"]}]
    targets = [{"group": "", "kind": "Service", "name": "kfp-api"}]
    spec = {"targetRefs": targets, "rules": [{"when": when}]}
    fake.add({**theirs(), "spec": spec})
    seen = [each["seen"] for each in lines(ctx, "related")]
    assert (
        "minio, pods of other namespaces and whoever is outside of the mesh could call "
        "kfp-api:8888 only where a condition of its policies holds, about an address, a header, "
        "a path or a method"
    ) in seen
    assert not [each for each in seen if "could no longer call kfp-api" in each]
    assert not [each for each in seen if "kfp-ui" in each]


def test_callers_of_a_port_without_mutual_tls_are_lost_though_a_relation_names_them(ctx, fake):
    chosen = {"app.kubernetes.io/name": "kfp-api"}
    fake.add(members.peers("plain", selector=chosen, ports={8888: "DISABLE"}))
    line = about(lines(ctx, "related"), "could no longer call kfp-api:8888")
    assert line["seen"] == (
        "kfp-ui, minio, pods of other namespaces and whoever is outside of the mesh could no "
        "longer call kfp-api:8888: PeerAuthentication kubeflow/plain disables mutual TLS there, "
        "and rules that name callers never match"
    )
    assert line["next"].startswith("take DISABLE out of PeerAuthentication kubeflow/plain")


def forwarded(ctx):
    found = lines(ctx, "related", ingress_world.route())
    return [each for each in found if "with the Host of a browser" in each["seen"]]


def test_caller_that_may_forward_the_host_of_a_browser_is_named(ctx, fake):
    (line,) = forwarded(ctx)
    assert line["seen"].startswith(
        "kfp-ui could no longer call kfp-api:8888 with the Host of a browser"
    )
    assert "AuthorizationPolicy that admits every caller to the port" in line["next"]
    fake.add(theirs({"to": [{"operation": {"ports": ["8888"]}}]}))
    assert forwarded(ctx) == []


def test_host_does_not_matter_at_a_port_without_a_declared_protocol(ctx, fake):
    fake.find("Service", "kfp-api", "kubeflow")["spec"]["ports"][0]["name"] = "api"
    assert forwarded(ctx) == []


def test_relation_is_a_remedy_for_units_that_write_no_virtual_services(ctx, fake):
    api = fake.find("Pod", "kfp-ui-0", "kubeflow")
    made = {**api["metadata"], "name": "store-749c84965d-r29rl", "labels": {"app": "store"}}
    fake.add({**api, "metadata": made, "spec": {"containers": [{"name": "istio-proxy"}]}})
    metadata = {"name": "store", "namespace": "kubeflow"}
    spec = {"selector": {"app": "store"}, "ports": [{"port": 9000}]}
    fake.add({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    info = testing.Relation("gateway-info", remote_app_name="kfp-ui")
    found = lines(ctx, "closed", info)
    assert RELATE + ", if its charm has that endpoint" in about(found, "call minio:")["next"]
    for target in ("store-749c84965d-r29rl", "kfp-ui"):
        remedy = about(found, f"call {target}:")["next"]
        assert remedy.startswith("if one calls: write an AuthorizationPolicy that lets it in")


def test_pod_without_a_sidecar_loses_no_caller(ctx, fake):
    without_sidecar(fake, "kfp-api")
    found = lines(ctx, "related")
    assert not [each for each in found if "could no longer call" in each["seen"]]
    assert "kfp-api-0" in about(found, "nothing holds the callers")["seen"]


def test_contradicting_policy_of_others_is_named(ctx, fake):
    fake.add(theirs({}, action="DENY"))
    line = about(lines(ctx, "related"), "AuthorizationPolicy kubeflow/theirs")
    assert "denies some of their callers" in line["seen"]
    assert line["next"].startswith("kubectl -n kubeflow get authorizationpolicy theirs")


def theirs(*rules, **spec):
    chosen = {"matchLabels": {"app.kubernetes.io/name": "kfp-api"}}
    return {
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "theirs", "namespace": "kubeflow"},
        "spec": {"selector": chosen, "rules": list(rules), **spec},
    }


@pytest.mark.parametrize(
    "source",
    [
        pytest.param({"principals": [sa("minio")]}, id="by name"),
        pytest.param({"principals": ["*/sa/minio"]}, id="by the end of a name"),
        pytest.param({"namespaces": ["kubeflow"]}, id="by namespace"),
        pytest.param({"namespaces": ["kube*"]}, id="by the start of a namespace"),
        pytest.param({"serviceAccounts": ["minio"]}, id="by account"),
    ],
)
def test_whoever_is_let_in_by_policies_of_others_alone_loses_nothing(ctx, fake, source):
    fake.add(theirs({"from": [{"source": source}]}))
    found = lines(ctx, "related")
    assert not [each for each in found if "could no longer call kfp-api" in each["seen"]]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param({"serviceAccounts": ["other"]}, id="by account"),
        pytest.param({"notPrincipals": ["*/sa/minio"]}, id="but for its name"),
    ],
)
def test_caller_that_policies_of_others_do_not_let_in_loses_its_relation(source):
    standing = {"from": [{"source": {"principals": [sa("minio")]}}]}
    pods = [members.pod("kfp-api"), members.pod("minio")]
    for each in pods:
        each["spec"]["serviceAccountName"] = each["metadata"]["name"].removesuffix("-0")
    target = callers.service("kfp-api", 8888)
    asked = decide.Asked(mode="related", model=callers.model(target, *read(pods, Pod)))
    scene = preview.Scene(
        asked=asked,
        decision=decide.Decision(policies=(decide.Policy(selector=target.selector),)),
        ours=[theirs(standing)],
        others=[theirs({"from": [{"source": source}]})],
        mesh=ALIVE,
        owner="o",
        application="app",
    )
    seen = [each.seen for each in preview.preview(scene)]
    assert any(each.startswith("minio") and "could no longer call" in each for each in seen), seen


def test_nobody_loses_what_is_held_already(ctx, fake):
    ctx.run(ctx.on.config_changed(), chosen(authorization="related"))
    found = lines(ctx, "related", own="related")
    assert not [each for each in found if "could no longer" in each["seen"]]
    assert "minio" in about(lines(ctx, "closed", own="related"), "call minio")["seen"]


def test_off_says_that_nothing_is_written_and_text_has_the_same_lines(ctx, fake):
    assert "authorization=off: this application writes no AuthorizationPolicy" in asked(ctx, "off")
    said = asked(ctx, "related")
    assert "! authorization  minio, pods of other namespaces and whoever is outside" in said
    assert "→ if one calls: relate the caller to kfp-api" in said


def test_preview_of_authorization_writes_nothing(ctx, fake):
    ctx.run(ctx.on.config_changed(), chosen())
    fake.writes.clear()
    asked(ctx, "closed")
    assert not [each for each in fake.writes if "authorizationpolicies" in each]


def test_model_behind_a_waypoint_is_told_that_callers_are_not_known(ctx, fake):
    ambient_objects.install_ambient(fake)
    labels = {"istio.io/dataplane-mode": "ambient", "istio.io/use-waypoint": "theirs"}
    fake.find("Namespace", "kubeflow")["metadata"]["labels"] = labels
    line = about(lines(ctx, "related"), "calls in their place")
    assert line["level"] == "broken"
    assert line["next"] == "juju config istio-integrator authorization=off"


def test_second_unit_counts_as_a_caller_of_the_first(ctx, fake):
    pod = fake.find("Pod", "minio-0", "kubeflow")
    assert "minio," not in about(lines(ctx, "closed"), "call minio")["seen"]
    fake.add({**pod, "metadata": {**pod["metadata"], "name": "minio-1"}})
    seen = about(lines(ctx, "closed"), "call minio")["seen"]
    assert seen.startswith("kfp-api, kfp-ui, minio, pods of other namespaces and whoever")


@given(st.lists(JSON, max_size=3), st.lists(JSON, max_size=3))
def test_policies_of_others_may_be_anything(rules, sources):
    pods = read([members.pod("a"), members.pod("b")], Pod)
    model = callers.model(callers.service("a", 80), *pods)
    stated = {"from": [{"source": each} for each in sources], "to": sources}
    for said in (rules, [stated], {"a": rules}):
        other = {**theirs(), "spec": {"rules": said}}
        asked = decide.Asked(mode="closed", model=model)
        scene = preview.Scene(
            asked=asked,
            decision=decide.decide(asked),
            ours=[],
            others=[other],
            mesh=ALIVE,
            owner="o",
            application="app",
        )
        assert all(each.seen for each in preview.preview(scene))
