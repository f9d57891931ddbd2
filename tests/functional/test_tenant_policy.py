"""The tenant policy on a real API server: rejected objects, exempt users, begin and end."""

import contextlib
import itertools
import json
import os
import pathlib
import runpy
import time
import uuid

import lightkube
import pytest
from lightkube.config.kubeconfig import KubeConfig

from integrator_contract import names
from testbed import cluster, options
from tests import kubernetes_objects, rights
from tests.api import Api, ApiError
from tests.functional import (
    charm_runs,
    gateway_api_world,
    ingress_world,
    istiod_world,
    limits_world,
    loopback_istiod,
)
from tests.functional.ingress_world import NETWORKING, being
from tests.kubernetes_objects import made, namespace_of
from tests.waiting import eventually

ROOT = pathlib.Path(__file__).parents[2]
COMMANDS = runpy.run_path(str(ROOT / "docs/commands.py"))
APP = rights.APPLICATION
HOST = "kf.example.com"
ALICE = "alice@example.com"
LABELS = {"app": "EDGE", "istio": "EDGE"}
MORE = {"chart": "gateway"}
"""A label of the gateway's pods by which nothing of ours selects them."""


class World:
    """A model with its policy, a profile that it serves, and another integrator's."""

    def __init__(self, kubeconfig, client, api, model=""):
        end = uuid.uuid4().hex[:6]
        self.model, self.profile, self.foreign = model or f"kf-{end}", f"alice-{end}", f"bob-{end}"
        self.edge = f"edge-{end}"
        self.api = api
        self.place = ingress_world.unserved(client, api, self.model)
        self._kubeconfig = kubeconfig
        self._users = {}
        self._connections = contextlib.ExitStack()
        profile = {names.PART_OF: names.PROFILE}
        marks = {
            self.model: {},
            self.edge: {},
            self.profile: {**profile, names.SERVED_BY: f"{self.model}.{APP}"},
            self.foreign: {**profile, names.SERVED_BY: f"{self.foreign}.one"},
        }
        for name, labels in marks.items():
            account = made("v1", "ServiceAccount", "default", name)
            for obj in (namespace_of(name, **labels), account):
                with contextlib.suppress(ApiError):
                    self.api.create(obj)
        # What an integrator serves is taken over by others once that has gone.
        for each in ((self.model, APP), (self.foreign, "one")):
            charm_runs.deploy(api, *each)
        spec = {"selector": LABELS, "ports": [{"port": 80}]}
        self.create(made("v1", "Service", "edge", "EDGE", spec))
        proxy = {"name": "istio-proxy", "image": "none", "args": ["proxy", "router"]}
        marks = {"labels": {**LABELS, **MORE}}
        self.create(kubernetes_objects.pod("edge", "EDGE", marks, containers=[proxy]))

    def filled(self, value):
        """Put the names of this world into an object of the tables."""
        text = json.dumps(value).replace("MODEL", self.model)
        return json.loads(text.replace("NAMESPACE", self.profile).replace("EDGE", self.edge))

    def create(self, obj, user=""):
        """Create an object of the tables; who is not told is the administrator."""
        return (self.being(user) if user else self.api).create(self.filled(obj))

    def reconcile(self, **options):
        """Run a hook; what it says of objects that break the policy comes back."""
        named = {"gateway_service": f"{self.edge}/edge", "hosts": HOST}
        self.place.options = {**named, "tenant_policy": "enforce", **options}
        return [each for each in self.place.hook() if "breaks tenant-policy" in each]

    def policies(self):
        return self.place.owned("ValidatingAdmissionPolicy")

    def being(self, user):
        """Connect as a user with all rights, whose requests only admission can reject."""
        if user not in self._users:
            self._users[user] = self._connections.enter_context(being(self._kubeconfig, user))
        return self._users[user]

    def refusal(self, obj, user=ALICE):
        """Create an object as a user; the reason for which it is refused, or nothing."""
        try:
            self.being(user).create(self.filled(obj), dry_run=True)
        except ApiError as error:
            words = error.message
        else:
            return ""
        assert "ValidatingAdmissionPolicy 'istio-integrator." in words
        assert "resulted in error" not in words
        return words

    def is_in_force(self):
        """Tell whether the API server applies the policy, with our host."""
        return bool(self.refusal(gateway_of())) and not self.refusal(virtual_service(hosts=[HOST]))

    def clean(self):
        """Remove the application and end everything."""
        self.place.remove()
        self.leave()

    def leave(self):
        """Delete the namespaces, and Juju's objects of both applications."""
        self._connections.close()
        for each in ((self.model, APP), (self.foreign, "one")):
            charm_runs.delete(self.api, *each)
        for name in (self.model, self.profile, self.foreign, self.edge):
            self.api.delete(namespace_of(name))


@pytest.fixture(scope="module")
def api(client, admin):
    gateway_api_world.install_definitions(client)
    istiod_world.install_definitions(client)
    loopback_istiod.create_namespace(admin)
    made = [admin.create(obj) for obj in ingress_world.installation()]
    yield admin
    for obj in made:
        admin.delete(obj)


@pytest.fixture(scope="module")
def world(client, api, kubeconfig):
    found = World(kubeconfig, client, api)
    assert found.reconcile() == []
    assert eventually(found.is_in_force)
    yield found
    found.clean()


@pytest.fixture
def changing(world):
    """The world whose policy a test changes."""
    yield world
    world.reconcile()
    assert eventually(world.is_in_force)


_numbers = itertools.count()


def name():
    return f"test-{next(_numbers)}"


# Objects as tenants and controllers write them; a world replaces MODEL, NAMESPACE and EDGE.

ROUTE = [{"destination": {"host": "web", "port": {"number": 80}}}]
OWN_PATH = "/notebook/NAMESPACE/x/"
GATEWAY_API = "gateway.networking.k8s.io/v1"


def virtual_service(*entries, gateways=("MODEL/kubeflow-gateway",), hosts=("*",), **metadata):
    entries = entries or ({},)
    http = [{"match": [{"uri": {"prefix": OWN_PATH}}], "route": ROUTE, **one} for one in entries]
    http = [{key: each for key, each in one.items() if each is not None} for one in http]
    spec = {"gateways": list(gateways), "hosts": list(hosts), "http": http}
    return made(NETWORKING, "VirtualService", name(), "NAMESPACE", spec, metadata=metadata)


def matching(**match):
    """An entry with one match."""
    return {"match": [match]}


def path(how, value):
    return matching(uri={how: value})


def http_route(rule=None, *, hostnames=(), parent=None, kind="HTTPRoute"):
    parents = [{"name": "kubeflow-gateway", "namespace": "MODEL", **(parent or {})}]
    backends = [{"name": "web", "port": 80}]
    usual = {} if kind == "GRPCRoute" else at("PathPrefix", OWN_PATH)
    rules = [{**usual, "backendRefs": backends, **(rule or {})}]
    spec = {"parentRefs": parents, "hostnames": list(hostnames), "rules": rules}
    return made(GATEWAY_API, kind, name(), "NAMESPACE", spec)


def at(kind, value, **more):
    """A rule's one match."""
    return {"matches": [{"path": {"type": kind, "value": value}, **more}]}


SERVERS = [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["a.example"]}]


def gateway_of(selector=None, namespace="NAMESPACE", **annotations):
    spec = {"servers": SERVERS, **({} if selector is None else {"selector": selector})}
    metadata = {"annotations": annotations}
    return made(NETWORKING, "Gateway", name(), namespace, spec, metadata=metadata)


def kubernetes_gateway(*addresses):
    listeners = [{"name": "http", "port": 80, "protocol": "HTTP"}]
    listed = [{"type": "Hostname", "value": each} for each in addresses]
    spec = {"gatewayClassName": "istio", "listeners": listeners, "addresses": listed}
    return made(GATEWAY_API, "Gateway", name(), "NAMESPACE", spec)


def pod(labels, namespace="NAMESPACE"):
    return kubernetes_objects.pod(name(), namespace, {"labels": labels})


def header(name, value):
    return {"headers": {"request": {"set": {name: value}}}}


def modified(**modifier):
    """A rule that changes headers of requests."""
    return {"filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": modifier}]}


def rewritten(path):
    return {"filters": [{"type": "URLRewrite", "urlRewrite": {"path": path}}]}


def hashing(**by):
    """A DestinationRule, which changes the routes to a Service of the tenant."""
    balanced = {"trafficPolicy": {"loadBalancer": {"consistentHash": by}}}
    rule = {"host": "web.NAMESPACE.svc.cluster.local", **balanced}
    return made(NETWORKING, "DestinationRule", name(), "NAMESPACE", rule)


def weighted(*weights):
    """An entry with a destination for each weight."""
    return {"route": [{**ROUTE[0], "weight": weight} for weight in weights]}


REWRITTEN = {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}
ALLOWED = {
    "a prefix below its namespace": virtual_service(),
    "an exact path below it, at our host": virtual_service(path("exact", OWN_PATH), hosts=[HOST]),
    **{
        f"a route as Kubeflow's controllers write it for {kind}": virtual_service(
            {
                **path("prefix", f"/{kind}/NAMESPACE/x/"),
                "rewrite": {"uri": "/"},
                "headers": {"request": {"set": {}}},
                "timeout": "300s",
            }
        )
        for kind in ("notebook", "tensorboard", "pvcviewer", "pvcviewers", "serving", "user")
    },
    "100 entries": virtual_service(*[header("x", '"y\\z" @a ä' + "x" * 400)] * 100),
    "empty values": virtual_service(
        {**header("x", ""), **matching(uri={"prefix": OWN_PATH}, headers={"x": {"exact": ""}})}
    ),
    "weights": virtual_service(weighted(0, 1000)),
    "weights of an HTTPRoute": http_route(
        {"backendRefs": [{"name": "web", "port": 80, "weight": 1_000_000}]}
    ),
    "a hash of a cookie": hashing(httpCookie={"name": "a", "ttl": "0s"}),
    "% on a Gateway of its own": virtual_service(header("x", "%A%"), gateways=["mine"]),
    "a header beside its path": virtual_service(
        matching(uri={"prefix": OWN_PATH}, headers={"x": {"exact": "y"}})
    ),
    "anything on a Gateway of its own": virtual_service(
        path("regex", ".*"), gateways=["mine", "NAMESPACE/kubeflow-gateway"], hosts=[HOST]
    ),
    "routes of the mesh": virtual_service({"match": None}, gateways=["mesh"], hosts=["web"]),
    "names that are not our Gateway's": virtual_service(
        {"match": None},
        gateways=["kubeflow-gateway", "kubeflow-gateway.MODEL-2", "MODEL/kubeflow-gateway-2"],
    ),
    "an HTTPRoute below its namespace": http_route(),
    "an HTTPRoute at our host": http_route(hostnames=[HOST]),
    "an HTTPRoute with a rewrite": http_route(
        {"filters": [{"type": "URLRewrite", "urlRewrite": REWRITTEN}]}
    ),
    "an HTTPRoute of its own Gateway": http_route(
        {"matches": [{}]}, parent={"namespace": "NAMESPACE"}
    ),
    "a GRPCRoute on another Gateway of the model": http_route(
        kind="GRPCRoute", parent={"name": "mine"}
    ),
    "a Gateway for pods of its own": gateway_of({"istio": "mine"}),
    "a Gateway with one label of ours and one of its own": gateway_of(
        {"app": "EDGE", "of": "alice"}
    ),
    "a Gateway of the Gateway API": kubernetes_gateway(),
    "one for a Service of its own": kubernetes_gateway("mine", "edge.NAMESPACE.svc.cluster.local"),
    "a pod": pod({"app": "EDGE", "istio": "mine"}),
}
ANY = {"regex": ".*"}
OTHER_HOSTS = {
    "another host": virtual_service(hosts=["kf.example.org"]),
    "a wildcard around our host": virtual_service(hosts=["*.example.com"]),
    "our host and another": virtual_service(hosts=[HOST, "a.example.com"]),
    "an HTTPRoute at another host": http_route(hostnames=["a.example"]),
}
REJECTED = {
    **{
        f"a path below {word}": virtual_service(path("prefix", f"/{word}/NAMESPACE/"))
        # Such as paths of Kubeflow's dashboard and pipelines, for profiles of the right name.
        for word in ("api", "kfp", "notebooks", "pvcviewer/x", "Notebook")
    },
    "a path of the dashboard for an HTTPRoute": http_route(at("Exact", "/api/NAMESPACE/x")),
    "a path with an empty segment": virtual_service(path("prefix", f"{OWN_PATH}/x")),
    "the root": virtual_service(path("prefix", "/")),
    "exactly the root": virtual_service(path("exact", "/")),
    "our application's path": virtual_service(path("prefix", "/pipeline/")),
    "another namespace's path": virtual_service(path("prefix", "/notebook/bob/")),
    "another namespace's path, by a label that names it": virtual_service(
        path("prefix", "/notebook/bob/"), labels={names.TENANT: "bob"}
    ),
    "paths of namespaces whose names begin alike": virtual_service(
        path("prefix", "/notebook/NAMESPACE")
    ),
    "its namespace deeper in the path": virtual_service(path("prefix", "/pipeline/x/NAMESPACE/")),
    "one of two matches elsewhere": virtual_service(
        {"match": [{"uri": {"prefix": OWN_PATH}}, {"uri": {"prefix": "/"}}]}
    ),
    "one of two entries elsewhere": virtual_service({}, path("prefix", "/x")),
    "no match": virtual_service({"match": None}),
    "a match without a path": virtual_service(
        matching(headers={"kubeflow-userid": {"exact": "x"}})
    ),
    "a regular expression as path": virtual_service(path("regex", ".*")),
    **{
        f"a regular expression in {key}": virtual_service(
            matching(uri={"prefix": OWN_PATH}, **{key: value})
        )
        for key, value in {
            "scheme": ANY,
            "method": ANY,
            "authority": ANY,
            "headers": {"a": {"regex": r"/x\x{100}"}},
            "withoutHeaders": {"a": ANY},
            "queryParams": {"a": ANY},
        }.items()
    },
    "a regular expression in a rewrite": virtual_service(
        {"rewrite": {"uriRegexRewrite": {"match": ".*", "rewrite": "/"}}}
    ),
    "a redirect": virtual_service({"redirect": {"authority": "evil.example"}, "route": None}),
    **{
        f"our Gateway by the name {other}": virtual_service(path("prefix", "/"), gateways=[other])
        for other in (
            "kubeflow-gateway.MODEL.svc.cluster.local",
            "kubeflow-gateway.MODEL",
            # What istiod makes of our Gateway.
            "MODEL/kubeflow-gateway-istio-autogenerated-k8s-gateway-http",
        )
    },
    "istiod's own annotation on a route": virtual_service(
        annotations={"internal.istio.io/parents": "x"}
    ),
    "an HTTPRoute without a match": http_route({"matches": None}),
    "an HTTPRoute with an empty list of matches": http_route({"matches": []}),
    "an HTTPRoute for the root": http_route(at("PathPrefix", "/")),
    "an HTTPRoute for another's exact path": http_route(at("Exact", "/pipeline")),
    "an HTTPRoute by a regular expression": http_route(at("RegularExpression", OWN_PATH)),
    **{
        f"an HTTPRoute with a regular expression in {key}": http_route(
            at(
                "PathPrefix",
                OWN_PATH,
                **{key: [{"type": "RegularExpression", "name": "a", "value": ".*"}]},
            )
        )
        for key in ("headers", "queryParams")
    },
    "an HTTPRoute that redirects": http_route(
        {
            "backendRefs": [],
            "filters": [
                {"type": "RequestRedirect", "requestRedirect": {"hostname": "evil.example"}}
            ],
        }
    ),
    "a GRPCRoute on our Gateway": http_route(kind="GRPCRoute"),
    "a Gateway without a selector": gateway_of(),
    "a Gateway with an empty selector": gateway_of({}),
    "a Gateway for our pods": gateway_of(LABELS),
    "a Gateway by one of their labels": gateway_of({"istio": "EDGE"}),
    "a Gateway by a label that only the pods have": gateway_of(MORE),
    "a Gateway by a label that istiod adds": gateway_of(
        {"topology.istio.io/cluster": "Kubernetes"}
    ),
    "a Gateway for our Service by annotation": gateway_of(
        {"istio": "mine"},
        **{
            "internal.istio.io/gateway-service": "edge.EDGE.svc.cluster.local",
            "internal.istio.io/parent-namespace": "EDGE",
        },
    ),
    "one for our Service": kubernetes_gateway("mine", "edge.EDGE.svc.cluster.local"),
    "one for our Service in another domain": kubernetes_gateway("edge.EDGE.svc.example.net"),
    "a pod with our gateway's labels": pod({**LABELS, "more": "x"}),
}


FIELDS = {
    "corsPolicy": virtual_service({"corsPolicy": {"allowOrigins": [ANY]}}),
    "a delegate": virtual_service({"delegate": {"name": "more"}, "route": None}),
    "a status that Envoy does not know": virtual_service(
        {"directResponse": {"status": 199}, "route": None}
    ),
    "a fault of such a status": virtual_service(
        {"fault": {"abort": {"httpStatus": 199, "percentage": {"value": 100}}}}
    ),
    "no destination": virtual_service({"route": None}),
    "weights of nothing": virtual_service(weighted(0, 0)),
}
"""What Kubeflow's, Knative's and KServe's controllers do not write."""
FREEZES = {
    **{
        f"{value!r} in a header": virtual_service(header("x", value))
        for value in ("%FOO%", "100%", "a\nb", "\0", "x" * 16_500)
    },
    "a header of a response": virtual_service({"headers": {"response": {"add": {"a": "%A%"}}}}),
    "a header of a destination": virtual_service({"route": [{**ROUTE[0], **header("x", "%A%")}]}),
    "a header without a name": virtual_service(header("", "x")),
    "a line break in a header's name": virtual_service(header("a\n", "x")),
    "the removal of a header without a name": virtual_service(
        {"headers": {"request": {"remove": ["a", ""]}}}
    ),
    "1,001 headers": virtual_service(
        {"headers": {"request": {"set": {f"a{number}": "x" for number in range(1001)}}}}
    ),
    "a line break in a rewrite": virtual_service({"rewrite": {"uri": "/a\nb"}}),
    "a zero in an authority": virtual_service({"rewrite": {"authority": "a\0b"}}),
    "a line break in :authority": virtual_service(header(":authority", "a\nb")),
    **{
        f"a match of {key} by {of!r}": virtual_service(
            matching(uri={"prefix": OWN_PATH}, **{key: {of: how}})
        )
        for key, of, how in (
            ("queryParams", "", {"exact": "x"}),
            ("queryParams", "a" * 1025, {"exact": "x"}),
            ("queryParams", "a", {"prefix": ""}),
            ("headers", "", {"exact": "x"}),
            ("headers", "a\n", {"exact": "x"}),
            ("headers", "a", {"prefix": ""}),
            ("withoutHeaders", "@request.auth.claims.a..b", {"exact": "x"}),
        )
    },
    "a match of an empty prefix of the method": virtual_service(
        matching(uri={"prefix": OWN_PATH}, method={"prefix": ""})
    ),
    "weights above Envoy's sum": virtual_service(weighted(*[2**31 - 1] * 3)),
    "a negative weight": virtual_service(weighted(1, -1)),
    "a header at a Gateway of another team": virtual_service(
        header("x", "%A%"), gateways=["NAMESPACE-2/web"]
    ),
    "a header of an HTTPRoute": http_route(modified(set=[{"name": "x", "value": "a%b"}])),
    "a header of an HTTPRoute's backend": http_route(
        {
            "backendRefs": [
                {"name": "web", "port": 80, **modified(add=[{"name": "x", "value": "%"}])}
            ]
        }
    ),
    "a rewrite of an HTTPRoute": http_route(
        rewritten({"type": "ReplaceFullPath", "replaceFullPath": "/a\nb"})
    ),
    "a header of a GRPCRoute": http_route(
        modified(set=[{"name": "x", "value": "%A%"}]), kind="GRPCRoute"
    ),
    "a hash of a header with a line break": hashing(httpHeaderName="a\n"),
    "a hash of a header without a name": hashing(httpHeaderName=""),
    "a hash of a parameter without a name": hashing(httpQueryParameterName=""),
    "a hash of a cookie without a name": hashing(httpCookie={"name": "", "ttl": "1s"}),
    "a hash of a cookie of the past": hashing(httpCookie={"name": "a", "ttl": "-1s"}),
}
"""For one of these Envoy refuses all routes of its port (test_guard_tenants.py)."""
SHOWS = {"metadata in a header": virtual_service(header("x", "%CEL(metadata)%"))}
"""What opens no route, but shows a part of the charm's random values."""
CONTROLLER = "system:serviceaccount:knative-serving:controller"
WHOM = {
    ALICE: 3,
    "system:serviceaccount:NAMESPACE:default-editor": 3,
    # The pods of a Deployment come from it.
    "system:serviceaccount:kube-system:replicaset-controller": 3,
    "system:serviceaccount:MODEL-x:jupyter-controller": 3,
    "system:serviceaccount:knative-serving-x:controller": 3,
    "system:serviceaccount:MODEL:jupyter-controller": 2,
    "system:serviceaccount:MODEL:kserve-controller": 1,
    CONTROLLER: 1,
}
"""Users, and how strict the policy is with them."""


@pytest.mark.parametrize(
    ("level", "obj"),
    [
        pytest.param(level, obj, id=name)
        for level, cases in enumerate((FREEZES | SHOWS, FIELDS, REJECTED, OTHER_HOSTS, ALLOWED))
        for name, obj in cases.items()
    ],
)
def test_writers_are_rejected_what_takes_requests_of_others_or_freezes_routes(world, level, obj):
    whom = world.filled(WHOM)
    found = {user: not world.refusal(obj, user) for user in whom}
    assert found == {user: level > strict for user, strict in whom.items()}


def test_policy_is_for_tenants_whom_this_application_serves(world):
    def is_held(namespace):
        return bool(world.refusal(gateway_of(namespace=namespace)))

    for namespace in (world.model, world.edge, world.foreign):
        assert not is_held(namespace)
    theirs = world.api.get("Namespace", world.foreign)
    world.api.merge_patch(theirs, {"metadata": {"labels": {names.SERVED_BY: None}}})
    assert eventually(lambda: is_held(world.foreign))
    labels = {names.PART_OF: None, names.SERVED: "enabled"}
    world.api.merge_patch(theirs, {"metadata": {"labels": labels}})
    assert eventually(lambda: is_held(world.foreign))
    world.api.merge_patch(theirs, {"metadata": {"labels": {names.SERVED: "disabled"}}})
    assert eventually(lambda: not is_held(world.foreign))


def rejected(world, obj):
    """The start of the message by which the status names an object."""
    kind, name = obj["kind"], obj["metadata"]["name"]
    return (
        f"{kind} {world.profile}/{name} breaks tenant-policy; run: "
        f"kubectl -n {world.profile} delete {kind.lower()}s.networking.istio.io {name}; "
    )


def test_what_a_tenant_may_not_write_is_named_until_it_goes_and_can_still_be_deleted(world):
    alice = world.being(ALICE)

    def owned(group, *entries, **more):
        """A route that a controller wrote for an object of a tenant."""
        owner = {"apiVersion": f"{group}/v1", "kind": "A", "name": "a", "uid": "1"}
        return virtual_service(*entries, ownerReferences=[{**owner, "controller": True}], **more)

    def foreign(*entries):
        """A route of another team."""
        obj = virtual_service(*entries)
        obj["metadata"]["namespace"] = world.foreign
        return obj

    bad = [
        virtual_service(path("prefix", "/"), finalizers=["example.com/x"]),
        gateway_of(),
        http_route(kind="GRPCRoute"),
        owned("kubeflow.org", path("prefix", "/")),
        owned("networking.internal.knative.dev", header("x", "%A%")),
        foreign(header("x", "%A%")),
        hashing(httpHeaderName=""),
    ]
    good = (
        virtual_service(),
        owned("kubeflow.org", hosts=["a.example"]),
        owned("networking.internal.knative.dev", path("regex", ".*")),
        foreign(path("prefix", "/")),
        gateway_of(namespace=world.foreign),
    )
    world.reconcile(tenant_policy="off")
    assert eventually(lambda: not world.is_in_force())
    for obj in (*bad, *good):
        world.create(obj, CONTROLLER)
    said = named(world, len(bad))
    commands = [each.partition("run: ")[2].partition(";")[0] for each in said]
    start = f"blocked: {rejected(world, bad[1])}"
    assert (
        f"{start}a Gateway selects pods of its own, not those of {world.model}/kubeflow-gateway."
        in said
    )
    assert sum("Envoy refuses all routes" in each for each in said) == 3
    assert all(each.startswith("blocked: ") for each in said)
    for command in commands:
        _, _, namespace, _, resource, obj = command.split()
        kind = next(
            f"{each.kind}.{each.group}"
            for each in alice.resources()
            if f"{each.plural}.{each.group}" == resource
        )
        alice.delete(alice.get(kind, obj, namespace))
        if left := alice.get(kind, obj, namespace):
            # A controller removes its finalizer from what stays as it was.
            alice.merge_patch(left, {"metadata": {"finalizers": None}})
    assert named(world, 0) == []


def test_application_without_trust_applies_the_policy_names_what_was_there_and_leaves(
    api, client, control_plane, namespace, untrusted
):
    world = World(control_plane.kubeconfig, client, api, namespace)
    roles = rights.gateway_namespace(namespace, world.edge, "edge")
    control_plane.kubectl("apply", "-f", "-", text=roles)
    with lightkube.Client(config=untrusted) as unit, Api(untrusted) as app:
        world.place.client = unit
        held = limits_world.World(namespace, api, app)
        with limits_world.limited(control_plane, held):
            for obj in (
                virtual_service(path("prefix", "/")),
                gateway_of(),
                kubernetes_gateway("edge.EDGE.svc.cluster.local"),
                http_route(at("PathPrefix", "/")),
                http_route(kind="GRPCRoute"),
            ):
                world.create(obj)
            named(world, 5)
            world.clean()
            assert world.policies() == []


def named(world, count):
    """The statuses, once they are that many: an API server notices a policy after a while."""
    assert eventually(lambda: len(world.reconcile()) == count), len(world.reconcile())
    return world.reconcile()


def test_many_are_named_and_more_than_one_hook_tries_are_said_until_the_model_ends(
    api, client, kubeconfig
):
    world = World(kubeconfig, client, api)
    for _ in range(202):
        world.create(gateway_of())
    assert eventually(lambda: len(world.reconcile()) > 150)
    (said,) = (each.message for each in world.place.ctx.juju_log if "passed over" in each.message)
    assert "tenants have more than 200" in said
    world.api.delete(namespace_of(world.model))
    assert eventually(lambda: not world.is_in_force())
    world.leave()


def test_object_that_was_there_may_be_changed_to_what_is_allowed_only(world):
    alice, bad = world.being(ALICE), virtual_service(path("prefix", "/"))
    there = world.create(bad, CONTROLLER)
    with pytest.raises(ApiError):
        alice.merge_patch(there, {"spec": {"hosts": [HOST]}})
    alice.merge_patch(there, {"spec": world.filled(virtual_service()["spec"])})
    with pytest.raises(ApiError):
        alice.merge_patch(there, {"spec": there["spec"]})
    with pytest.raises(ApiError):
        alice.merge_patch(there, {"metadata": {"annotations": {"internal.istio.io/parents": "x"}}})
    labelled = world.create(pod({"app": "EDGE"}), ALICE)
    with pytest.raises(ApiError):
        alice.merge_patch(labelled, {"metadata": {"labels": world.filled(LABELS)}})


def test_warning_rejects_nothing_and_names_what_breaks_it(changing, control_plane):
    world = changing
    world.reconcile(tenant_policy="warn")
    obj = world.filled(gateway_of())
    as_alice = (f"--as={ALICE}", "--as-group=system:masters")

    def said():
        argv = ("create", "--dry-run=server", "-f", "-", *as_alice)
        return control_plane.kubectl(*argv, text=json.dumps(obj), check=False).stderr

    assert eventually(lambda: "Warning: " in said()), said()
    assert "a Gateway selects pods of its own" in said()
    created = world.api.create(obj)
    (found,) = world.reconcile(tenant_policy="warn")
    assert found.startswith(f"active: {rejected(world, obj)}")
    world.api.delete(created)


def test_last_policy_that_was_off_for_seconds_is_in_force_again(world):
    world.reconcile(tenant_policy="off")
    assert eventually(lambda: not world.is_in_force())
    # A second after the last policy with a paramKind is deleted, an API server stops the informer
    # and never starts it again (https://github.com/kubernetes/kubernetes/issues/130887). Nothing
    # shows that it has stopped.
    time.sleep(3)
    world.reconcile()
    assert eventually(world.is_in_force)


def test_command_of_the_page_ends_the_policy(changing, control_plane):
    """docs/how-to/clean-up.md."""
    name = "test_command_of_the_page_ends_the_policy"
    (block,) = (each for each in COMMANDS["blocks"](ROOT) if each.what == name)
    program, *argv = block.text.replace("kubeflow", changing.model).split()
    assert program == "kubectl"
    control_plane.kubectl(*argv)
    assert eventually(lambda: not changing.is_in_force())


def test_hosts_of_the_model_are_followed(changing):
    def is_refused(*hosts):
        return bool(changing.refusal(virtual_service(hosts=hosts)))

    assert not is_refused(HOST)
    changing.reconcile(hosts="*.example.net")
    assert eventually(lambda: is_refused(HOST))
    assert not is_refused("*")
    assert not is_refused("*.example.net")


def test_api_server_finds_no_fault_with_the_types_in_the_policy(world):
    assert eventually(lambda: "typeChecking" in world.policies()[0].get("status", ()))
    (policy,) = world.policies()
    assert policy["status"]["typeChecking"].get("expressionWarnings", []) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", options.OLDER)
def test_policy_is_in_force_on_an_older_api_server(version):
    testbed = cluster.Testbed(f"older-policy-{version.replace('.', '-')}-{os.getpid()}")
    testbed.up(cluster.Options(control_plane_only=True, kubernetes=version))
    config = KubeConfig.from_file(testbed.kubeconfig).get()
    assert config
    try:
        with lightkube.Client(config=config) as client, Api(config) as api:
            gateway_api_world.install_definitions.__wrapped__(client)
            istiod_world.install_definitions.__wrapped__(client)
            loopback_istiod.create_namespace(api)
            for obj in ingress_world.installation():
                api.create(obj)
            world = World(testbed.kubeconfig, client, api)
            assert world.reconcile() == []
            assert eventually(world.is_in_force)
            for level, rows in enumerate((FREEZES, FIELDS, REJECTED, OTHER_HOSTS, ALLOWED)):
                for name, obj in rows.items():
                    assert bool(world.refusal(obj)) == (level < 4), name
            world.leave()
    finally:
        testbed.down()
