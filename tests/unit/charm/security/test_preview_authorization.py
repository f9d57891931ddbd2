"""The preview of `authorization`: calls that another value would deny."""

import dataclasses
import json

import pytest

from istio_integrator.messages import Template
from tests.unit.cases import cases
from tests.unit.charm import ambient_objects, fake_cluster, ingress_world
from tests.unit.charm.charm_world import OWN_POD, state
from tests.unit.charm.objects import make
from tests.unit.charm.security import members
from tests.unit.charm.security.applications import add_application, mesh
from tests.unit.charm.security.callers import NAME, policy, sa

RELATIONS = (mesh("kfp-api", policy("kfp-ui", "kfp-api")),)
REST = "pods of other namespaces and callers outside of the mesh"
WRITE = "write an AuthorizationPolicy that admits it, or keep authorization=off"


@pytest.fixture
def fake(monkeypatch):
    found = fake_cluster.FakeCluster()
    found.namespace("kf")
    ingress_world.connect(found, monkeypatch)
    for name, port in (("kfp-ui", 3000), ("kfp-api", 8888), ("minio", 9000)):
        add_application(found, name, port)
    console = {"port": 9001, "name": "http-console"}
    found.find("Service", "minio", "kf")["spec"]["ports"].append(console)
    found.put("Pod", OWN_POD, labels={NAME: "mesh-2"}, spec={"containers": []})
    # An own gateway, and Services that share a pod with another.
    add_application(found, "own", 8080)
    for name, *behind in (("z", "minio", 9002), ("z-api", "kfp-api", 8888)):
        found.add({**members.service(*behind), "metadata": {"namespace": "kf", "name": name}})
    found.put("Service", "external", spec={"ports": [{"port": 5432, "name": "db"}]})
    proxy, api = (found.find("Pod", name, "kf")["spec"] for name in ("own-0", "kfp-api-0"))
    proxy["containers"] = [{"name": "istio-proxy", "args": ["proxy", "router"]}]
    api["containers"][0]["livenessProbe"] = {"httpGet": {"port": 8888, "path": "/health"}}
    for obj in found.objects.values():
        if obj["kind"] == "Pod" and obj["metadata"]["namespace"] == "kf":
            name = obj["metadata"]["name"].removesuffix("-0")
            obj["spec"]["serviceAccountName"] = "store" if name == "minio" else name
    return found


def chosen(*more, relations=RELATIONS, **config):
    return dataclasses.replace(state(**config), relations={*relations, *more})


def lines(ctx, mode, *more, **given):
    params = {"authorization": mode, "format": "json"}
    ctx.run(ctx.on.action("preview-security", params=params), chosen(*more, **given))
    found = json.loads(ctx.action_results["report"])
    return [each for each in found if each["check"] == "authorization"]


def seen(found, said):
    return sorted(each["seen"] for each in found if each["message"] == said.name)


def nothing(_):
    pass


def without_sidecar(name):
    def change(fake):
        fake.find("Pod", f"{name}-0", "kf")["spec"]["containers"] = [{"name": "charm"}]

    return change


def theirs(*rules, namespace="kf"):
    spec = {"selector": {"matchLabels": {NAME: "kfp-api"}}, "rules": list(rules)}
    return make("AuthorizationPolicy", "theirs", namespace, spec=spec)


def add(obj):
    return lambda fake: fake.add(obj)


def admit(namespace="kf", **source):
    """Add another team's policy that admits callers of kfp-api."""
    return add(theirs({"from": [{"source": source}]}, namespace=namespace))


def to_a_service(fake):
    """Have a policy for waypoints admit callers that name no user."""
    when = [{"key": "request.headers[kubeflow-userid]", "notValues": ["*"]}]
    targets = [{"group": "", "kind": "Service", "name": "kfp-api"}]
    fake.add({**theirs(), "spec": {"targetRefs": targets, "rules": [{"when": when}]}})


def second_unit(fake):
    pod = fake.find("Pod", "minio-0", "kf")
    fake.add({**pod, "metadata": {**pod["metadata"], "name": "minio-1"}})


def many(fake):
    for number in range(8):
        add_application(fake, f"caller-{number}", 7000 + number)


def behind_a_waypoint(fake):
    ambient_objects.into_ambient(fake, **{"istio.io/use-waypoint": "theirs"})


def disabled_for_ztunnel(fake):
    ambient_objects.into_ambient(fake)
    disable(mode="DISABLE")(fake)


def disable(**fields):
    return add(members.peers("plain", **fields))


API = {NAME: "kfp-api"}
LOST = f"{REST} could no longer call kfp-api:8888"
UNKNOWN = (
    f"kfp-ui, minio, {LOST}: PeerAuthentication kf/plain disables mutual TLS there, and "
    "rules that name callers never match"
)


@cases(
    ("change", "said", "want"),
    nobody_names_them=(nothing, Template.CALLERS_LOST, f"minio, {LOST}"),
    webhook_without_a_policy=(
        add(members.webhook("hook", "minio", 9000)), Template.PORT_OPEN_TO_ALL, "",
    ),
    no_policy_can_name_them=(
        without_sidecar("minio"), Template.CALLERS_LOST, f"minio (without a sidecar), {LOST}",
    ),
    however_many_they_are=(
        many, Template.CALLERS_LOST,
        f"{', '.join(f'caller-{each}' for each in range(8))}, minio, {LOST}",
    ),
    a_condition_would_hold=(
        to_a_service, Template.CALLERS_LIMITED,
        f"minio, {REST} could call kfp-api:8888 only where a condition of its policies holds",
    ),
    nobody_is_lost_by_a_condition=(to_a_service, Template.CALLERS_LOST, ""),
    others_admit_more=(
        admit(principals=["*"]), Template.POLICY_INTERFERES,
        "AuthorizationPolicy kf/theirs is about kfp-api-0, too, and admits callers beside them",
    ),
    others_name_it=(admit(principals=[sa("store")]), Template.CALLERS_LOST, ""),
    others_name_it_for_the_mesh=(
        admit(fake_cluster.ROOT, principals=[sa("store")]), Template.CALLERS_LOST, "",
    ),
    others_name_its_end=(admit(principals=["*/sa/store"]), Template.CALLERS_LOST, ""),
    others_name_its_namespace=(admit(namespaces=["kube*"]), Template.CALLERS_LOST, ""),
    others_name_its_account=(admit(serviceAccounts=["store"]), Template.CALLERS_LOST, ""),
    port_without_mutual_tls=(
        disable(selector=API, ports={8888: "DISABLE"}), Template.CALLERS_UNKNOWN, UNKNOWN,
    ),
    model_without_mutual_tls=(disable(mode="DISABLE"), Template.CALLERS_UNKNOWN, UNKNOWN),
    mesh_without_mutual_tls=(
        disable(mode="DISABLE", namespace=fake_cluster.ROOT), Template.CALLERS_UNKNOWN,
        UNKNOWN.replace("kf/", f"{fake_cluster.ROOT}/"),
    ),
    another_port_without_mutual_tls=(
        disable(selector=API, mode="PERMISSIVE", ports={1: "DISABLE"}),
        *(Template.CALLERS_LOST, f"minio, {LOST}"),
    ),
    ztunnel_ignores_that=(disabled_for_ztunnel, Template.CALLERS_LOST, f"minio, {LOST}"),
    a_waypoint_calls=(
        behind_a_waypoint, Template.WAYPOINT_HIDES_CALLERS,
        ("waypoint theirs hides the callers; authorization=related names callers, and in "
         "namespace kf the waypoint calls in their place"),
    ),
)  # fmt: skip
def test_callers_that_would_be_denied_are_named(ctx, fake, change, said, want):
    change(fake)
    found = seen(lines(ctx, "related"), said)
    assert [each[: len(want)] for each in found] == [want] * bool(want)


@cases(("change", "also"), one_unit=(nothing, ""), two_units=(second_unit, "minio, "))
def test_closed_model_is_called_by_stated_callers_alone(ctx, fake, change, also):
    change(fake)
    assert seen(lines(ctx, "closed"), Template.CALLERS_LOST) == [
        f"kfp-api, kfp-ui, {also}{REST} could no longer call minio:9000,9001,9002",
        f"kfp-api, minio, {REST} could no longer call kfp-ui:3000",
        f"minio, {LOST}",
    ]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_neither_call_nor_are_called(ctx, fake, phase):
    before = lines(ctx, "closed")
    for number, name in enumerate(("kfp-api", "minio", "backup")):
        proxy = {"name": "istio-proxy"}
        ended = members.pod(f"job-{number}", proxy, labels={NAME: name}, phase=phase)
        fake.add(ended)
        fake.add(members.pod(f"bare-{number}", inside=False, labels={NAME: name}, phase=phase))
    assert lines(ctx, "closed") == before


def test_caller_that_others_do_not_admit_loses_its_relation(ctx, fake):
    named = (mesh("kfp-api", policy("store", "kfp-api")),)
    ctx.run(ctx.on.config_changed(), chosen(relations=named, authorization="related"))
    admit(serviceAccounts=["other"])(fake)
    found = lines(ctx, "related", leader=False)
    assert seen(found, Template.CALLERS_LOST) == ["minio could no longer call kfp-api:8888"]


def test_caller_of_some_paths_alone_is_named(ctx, fake):
    some = {"ports": [8888], "paths": ["/apis/*"]}
    related = mesh("kfp-api", policy("kfp-ui", "kfp-api", some)), mesh("minio", 5, 6)
    rows = lines(ctx, "related", relations=related)
    assert len(seen(rows, Template.AUTHORIZATION_INVALID)) == 2
    (found,) = seen(rows, Template.CALLERS_LIMITED)
    assert found.startswith("kfp-ui could call kfp-api:8888 only where a condition of its")


def test_nothing_is_written_and_nobody_loses_what_is_restricted_already(ctx, fake):
    ctx.run(ctx.on.config_changed(), chosen(ingress_world.route(), authorization="related"))
    fake.writes.clear()
    found = lines(ctx, "related", ingress_world.route(), authorization="related")
    assert seen(found, Template.CALLERS_LOST) == seen(found, Template.CALLS_BY_HOST) == []
    closed = lines(ctx, "closed", ingress_world.route(), authorization="related")
    assert seen(closed, Template.CALLERS_LOST)[0].endswith(" minio:9000,9001,9002")
    assert not [each for each in fake.writes if "authorizationpolicies" in each]


@cases(
    ("change", "want"),
    declared_port=(
        nothing,
        ["kfp-ui could no longer call kfp-api:8888 with the Host of a browser"],
    ),
    host_that_ztunnel_does_not_see=(ambient_objects.into_ambient, []),
    port_that_is_open_to_all=(add(theirs({"to": [{"operation": {"ports": ["8888"]}}]})), []),
    **{
        f"port_{words}": (
            lambda fake, port=port: fake.find("Service", "kfp-api", "kf")["spec"]["ports"][
                0
            ].update(port),
            ["kfp-ui could no longer call kfp-api:8888 with the Host of a browser"] * is_http,
        )
        for words, is_http, port in (
            ("without_a_declared_protocol", False, {"name": "api"}),
            ("of_a_name_that_begins_like_one", False, {"name": "httpd"}),
            ("of_a_protocol_beside_its_name", True, {"name": "api", "appProtocol": "http2"}),
            ("of_another_protocol_than_its_name", False, {"appProtocol": "tcp"}),
        )
    },
)
def test_caller_that_may_forward_the_host_of_a_browser_is_named(ctx, fake, change, want):
    change(fake)
    routes = ingress_world.route("absent"), ingress_world.route()
    stated = mesh("kfp-api", *(policy(each, "kfp-api") for each in ("kfp-ui", "store")))
    found = seen(lines(ctx, "related", *routes, relations={stated}), Template.CALLS_BY_HOST)
    assert [each.rpartition(": ")[0] for each in found] == want


def test_remedy_is_a_relation_only_to_an_application_that_names_its_callers(ctx, fake):
    found = lines(ctx, "closed")
    remedies = {
        each["seen"].rpartition(" call ")[2].partition(":")[0]: each["next"]
        for each in found
        if each["message"] == Template.CALLERS_LOST.name
    }
    assert remedies == {
        "kfp-api": f"if one calls: relate the caller to kfp-api, or {WRITE}",
        "minio": f"if one calls: {WRITE}",
        "kfp-ui": f"if one calls: {WRITE}",
    }
