"""What the tenant policy rejects, from whom, and how it begins and ends, on a real API server."""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import runpy
import time
import uuid

import lightkube
import ops
import pytest

from integrator_contract import names
from istio_integrator.ingress import gateway, tenant_policy
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import errors, fences
from tests import shown
from tests.functional import charm_parts, gateway_api_world, istiod_world, limits_world
from tests.functional.tenant_parts import being, made
from tests.waiting import eventually

ROOT = pathlib.Path(__file__).parents[2]
COMMANDS = runpy.run_path(str(ROOT / "docs/commands.py"))
APP = charm_parts.APP
HOST = "kf.example.com"
LABELS = {"app": "edge", "istio": "edge"}
MORE = {"chart": "gateway"}
"""A label of the gateway's pods by which nothing of ours selects them."""


class World:
    """A model with its policy, a profile that it serves, and one that another integrator serves.

    Args:
        kubeconfig: Of the administrator.
        api: As the administrator.
        model: Its name, where it is there already.
    """

    def __init__(self, kubeconfig, api, model=""):
        end = uuid.uuid4().hex[:6]
        self.model, self.profile, self.foreign = model or f"kf-{end}", f"alice-{end}", f"bob-{end}"
        self.edge = f"edge-{end}"
        self.api = api
        self.app = api
        self._kubeconfig = kubeconfig

    def furnish(self):
        """Have the namespaces, and a pod of the gateway."""
        profile = {names.PART_OF: names.PROFILE}
        marks = {
            self.model: {},
            self.edge: {},
            self.profile: {**profile, names.SERVED_BY: f"{self.model}.{APP}"},
            self.foreign: {**profile, names.SERVED_BY: "another.one"},
        }
        for name, labels in marks.items():
            metadata = {"name": name, "labels": labels}
            with contextlib.suppress(errors.ConflictError):
                self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            with contextlib.suppress(errors.ConflictError):
                self.api.create(made("v1", "ServiceAccount", "default", name))
        self.api.create(pod(self, namespace=self.edge, labels={**LABELS, **MORE}))

    def component(self, *, mode="enforce", hosts=(HOST,)):
        """Return the part of the charm."""
        scope = charm_parts.context(self.app, self.model, tenant_policy=mode)
        scope = dataclasses.replace(scope, exposes=True)
        target = gateway.Target(
            namespace=self.edge,
            selector=LABELS,
            service="edge",
            http_port=80,
            https_port=443,
            hosts=hosts,
        )
        return tenant_policy.TenantPolicy(scope, lambda: target)

    def reconcile(self, **given):
        """Do what a hook does; the statuses come back."""
        return shown.statuses(self.component(**given).reconcile())

    def being(self, user):
        """The API server as a user who may do everything, but for policies."""
        return being(self._kubeconfig, user)

    def refusal(self, obj, user="alice@example.com"):
        """Create an object as a user; the reason for which it is refused, or nothing."""
        with self.being(user) as api:
            try:
                api.create(obj, dry_run=True)
            except errors.RefusedError as error:
                words = str(error.refusal)
            else:
                return ""
        assert words.startswith("ValidatingAdmissionPolicy istio-integrator.")
        assert "resulted in error" not in words
        return words

    def is_in_force(self):
        """Tell whether the API server applies the policy."""
        return bool(self.refusal(gateway_of(self)))

    def clean(self):
        """End everything."""
        self.component().remove()
        for name in (self.model, self.profile, self.foreign, self.edge):
            self.api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


@pytest.fixture(scope="module")
def api(client):
    gateway_api_world.install_definitions(client)
    return istiod_world.install_definitions(client)


@pytest.fixture(scope="module")
def world(api, kubeconfig):
    found = World(kubeconfig, api)
    found.furnish()
    assert found.reconcile() == []
    assert eventually(found.is_in_force)
    yield found
    found.clean()


@pytest.fixture
def own_world(api, kubeconfig):
    """A world whose policy a test begins and ends."""
    found = World(kubeconfig, api)
    found.furnish()
    yield found
    found.clean()


_numbers = itertools.count()


def name():
    return f"test-{next(_numbers)}"


# Objects as tenants and controllers write them. Of a text, MODEL and NAMESPACE are replaced.


def filled(world, value):
    if isinstance(value, str):
        return (
            value.replace("MODEL", world.model)
            .replace("NAMESPACE", world.profile)
            .replace("EDGE", world.edge)
        )
    if isinstance(value, dict):
        return {filled(world, key): filled(world, each) for key, each in value.items()}
    return [filled(world, each) for each in value] if isinstance(value, list) else value


ROUTE = [{"destination": {"host": "web", "port": {"number": 80}}}]
OWN_PATH = "/notebook/NAMESPACE/x/"


def virtual_service(world, *entries, gateways=("MODEL/kubeflow-gateway",), hosts=("*",), **more):
    entries = entries or ({},)
    http = [{"match": [{"uri": {"prefix": OWN_PATH}}], "route": ROUTE, **one} for one in entries]
    http = [{key: each for key, each in one.items() if each is not None} for one in http]
    spec = {"gateways": list(gateways), "hosts": list(hosts), "http": http}
    spec, more = filled(world, spec), filled(world, more)
    return made(
        "networking.istio.io/v1", "VirtualService", name(), world.profile, spec, metadata=more
    )


def matching(**match):
    """An entry with one match."""
    return {"match": [match]}


def path(how, value):
    return matching(uri={how: value})


def http_route(world, rule=None, *, hostnames=(), parent=None, kind="HTTPRoute"):
    parents = [{"name": "kubeflow-gateway", "namespace": "MODEL", **(parent or {})}]
    backends = [{"name": "web", "port": 80}]
    usual = {} if kind == "GRPCRoute" else {"matches": [at("PathPrefix", OWN_PATH)]}
    rules = [{**usual, "backendRefs": backends, **(rule or {})}]
    spec = filled(world, {"parentRefs": parents, "hostnames": list(hostnames), "rules": rules})
    return made("gateway.networking.k8s.io/v1", kind, name(), world.profile, spec)


def at(kind, value, **more):
    return {"path": {"type": kind, "value": value}, **more}


SERVERS = [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["a.example"]}]


def gateway_of(world, selector=None, **annotations):
    spec = {"servers": SERVERS, **({} if selector is None else {"selector": selector})}
    metadata = {"annotations": filled(world, annotations)}
    return made(
        "networking.istio.io/v1", "Gateway", name(), world.profile, spec, metadata=metadata
    )


def kubernetes_gateway(world, *addresses):
    listeners = [{"name": "http", "port": 80, "protocol": "HTTP"}]
    listed = [{"type": "Hostname", "value": each} for each in addresses]
    spec = filled(
        world, {"gatewayClassName": "istio", "listeners": listeners, "addresses": listed}
    )
    return made("gateway.networking.k8s.io/v1", "Gateway", name(), world.profile, spec)


def pod(world, labels, namespace=""):
    spec = {"containers": [{"name": "main", "image": "none"}]}
    where, metadata = namespace or world.profile, {"labels": labels}
    return made("v1", "Pod", name(), where, spec, metadata=metadata)


ALLOWED = {
    "a prefix below its namespace": virtual_service,
    "an exact path below it, at our host": lambda w: virtual_service(
        w, path("exact", OWN_PATH), hosts=[HOST]
    ),
    "a header beside its path, a rewrite, a time limit": lambda w: virtual_service(
        w,
        {
            **matching(uri={"prefix": OWN_PATH}, headers={"x": {"exact": "y"}}),
            "rewrite": {"uri": "/"},
            "timeout": "300s",
        },
    ),
    "anything on a Gateway of its own": lambda w: virtual_service(
        w, path("regex", ".*"), gateways=["mine", "NAMESPACE/kubeflow-gateway"], hosts=[HOST]
    ),
    "routes of the mesh": lambda w: virtual_service(
        w, {"match": None}, gateways=["mesh"], hosts=["web"]
    ),
    "a short name that is not our Gateway": lambda w: virtual_service(
        w, {"match": None}, gateways=["kubeflow-gateway"]
    ),
    "an HTTPRoute below its namespace": http_route,
    "an HTTPRoute at our host": lambda w: http_route(w, hostnames=[HOST]),
    "an HTTPRoute with a rewrite": lambda w: http_route(
        w,
        {
            "filters": [
                {
                    "type": "URLRewrite",
                    "urlRewrite": {
                        "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}
                    },
                }
            ]
        },
    ),
    "an HTTPRoute of its own Gateway": lambda w: http_route(
        w, {"matches": [{}]}, parent={"namespace": "NAMESPACE"}
    ),
    "a GRPCRoute on its own": lambda w: http_route(
        w, kind="GRPCRoute", parent={"namespace": "NAMESPACE"}
    ),
    "a Gateway for pods of its own": lambda w: gateway_of(w, {"istio": "mine"}),
    "a Gateway with one label of ours and one of its own": lambda w: gateway_of(
        w, {"app": "edge", "of": "alice"}
    ),
    "a Gateway of the Gateway API": kubernetes_gateway,
    "one for a Service of its own": lambda w: kubernetes_gateway(
        w, "mine", "edge.NAMESPACE.svc.cluster.local"
    ),
    "a pod": lambda w: pod(w, {"app": "edge", "istio": "mine"}),
}
REJECTED = {
    "another host": lambda w: virtual_service(w, hosts=["kf.example.org"]),
    "a wildcard around our host": lambda w: virtual_service(w, hosts=["*.example.com"]),
    "our host and another": lambda w: virtual_service(w, hosts=[HOST, "a.example.com"]),
    "the root": lambda w: virtual_service(w, path("prefix", "/")),
    "exactly the root": lambda w: virtual_service(w, path("exact", "/")),
    "our application's path": lambda w: virtual_service(w, path("prefix", "/pipeline/")),
    "another namespace's path": lambda w: virtual_service(w, path("prefix", "/notebook/bob/")),
    "paths of namespaces whose names begin alike": lambda w: virtual_service(
        w, path("prefix", "/notebook/NAMESPACE")
    ),
    "its namespace deeper in the path": lambda w: virtual_service(
        w, path("prefix", "/pipeline/x/NAMESPACE/")
    ),
    "one of two matches elsewhere": lambda w: virtual_service(
        w, {"match": [{"uri": {"prefix": OWN_PATH}}, {"uri": {"prefix": "/"}}]}
    ),
    "one of two entries elsewhere": lambda w: virtual_service(w, {}, path("prefix", "/x")),
    "no match": lambda w: virtual_service(w, {"match": None}),
    "a match without a path": lambda w: virtual_service(
        w, matching(headers={"kubeflow-userid": {"exact": "x"}})
    ),
    "a regular expression as path": lambda w: virtual_service(w, path("regex", ".*")),
    **{
        f"a regular expression in {key}": lambda w, key=key, value=value: virtual_service(
            w, matching(uri={"prefix": OWN_PATH}, **{key: value})
        )
        for key, value in {
            "scheme": {"regex": ".*"},
            "method": {"regex": ".*"},
            "authority": {"regex": ".*"},
            "headers": {"a": {"regex": r"/x\x{100}"}},
            "withoutHeaders": {"a": {"regex": ".*"}},
            "queryParams": {"a": {"regex": ".*"}},
        }.items()
    },
    "a regular expression in a rewrite": lambda w: virtual_service(
        w, {"rewrite": {"uriRegexRewrite": {"match": ".*", "rewrite": "/"}}}
    ),
    "a regular expression in corsPolicy": lambda w: virtual_service(
        w, {"corsPolicy": {"allowOrigins": [{"regex": ".*"}]}}
    ),
    "a redirect": lambda w: virtual_service(
        w, {"redirect": {"authority": "evil.example"}, "route": None}
    ),
    "a delegate": lambda w: virtual_service(w, {"delegate": {"name": "more"}, "route": None}),
    "our Gateway by its older name": lambda w: virtual_service(
        w, path("prefix", "/"), gateways=["kubeflow-gateway.MODEL.svc.cluster.local"]
    ),
    "our Gateway by its short older name": lambda w: virtual_service(
        w, path("prefix", "/"), gateways=["kubeflow-gateway.MODEL"]
    ),
    "what istiod makes of our Gateway": lambda w: virtual_service(
        w,
        path("prefix", "/"),
        gateways=["MODEL/kubeflow-gateway-istio-autogenerated-k8s-gateway-http"],
    ),
    "istiod's own annotation on a route": lambda w: virtual_service(
        w, annotations={"internal.istio.io/parents": "x"}
    ),
    "an HTTPRoute at another host": lambda w: http_route(w, hostnames=["a.example"]),
    "an HTTPRoute without a match": lambda w: http_route(w, {"matches": None}),
    "an HTTPRoute with an empty list of matches": lambda w: http_route(w, {"matches": []}),
    "an HTTPRoute for the root": lambda w: http_route(w, {"matches": [at("PathPrefix", "/")]}),
    "an HTTPRoute for another's exact path": lambda w: http_route(
        w, {"matches": [at("Exact", "/pipeline")]}
    ),
    "an HTTPRoute by a regular expression": lambda w: http_route(
        w, {"matches": [at("RegularExpression", OWN_PATH)]}
    ),
    **{
        f"an HTTPRoute with a regular expression in {key}": lambda w, key=key: http_route(
            w,
            {
                "matches": [
                    at(
                        "PathPrefix",
                        OWN_PATH,
                        **{key: [{"type": "RegularExpression", "name": "a", "value": ".*"}]},
                    )
                ]
            },
        )
        for key in ("headers", "queryParams")
    },
    "an HTTPRoute that redirects": lambda w: http_route(
        w,
        {
            "backendRefs": [],
            "filters": [
                {"type": "RequestRedirect", "requestRedirect": {"hostname": "evil.example"}}
            ],
        },
    ),
    "a GRPCRoute on our Gateway": lambda w: http_route(w, kind="GRPCRoute"),
    "a Gateway without a selector": gateway_of,
    "a Gateway with an empty selector": lambda w: gateway_of(w, {}),
    "a Gateway for our pods": lambda w: gateway_of(w, LABELS),
    "a Gateway by one of their labels": lambda w: gateway_of(w, {"istio": "edge"}),
    "a Gateway by a label that only the pods have": lambda w: gateway_of(w, MORE),
    "a Gateway by a label that istiod adds": lambda w: gateway_of(
        w, {"topology.istio.io/cluster": "Kubernetes"}
    ),
    "a Gateway for our Service by annotation": lambda w: gateway_of(
        w,
        {"istio": "mine"},
        **{
            "internal.istio.io/gateway-service": "edge.EDGE.svc.cluster.local",
            "internal.istio.io/parent-namespace": "EDGE",
        },
    ),
    "one for our Service": lambda w: kubernetes_gateway(w, "mine", "edge.EDGE.svc.cluster.local"),
    "one for our Service in another domain": lambda w: kubernetes_gateway(
        w, "edge.EDGE.svc.example.net"
    ),
    "a pod with our gateway's labels": lambda w: pod(w, {**LABELS, "more": "x"}),
}
OF_THE_CLUSTER = "system:serviceaccount:kube-system:replicaset-controller"


def whom(world):
    """Users, and whether the policy is for them."""
    return {
        "alice@example.com": True,
        f"system:serviceaccount:{world.profile}:default-editor": True,
        # The pods of a Deployment come from it.
        OF_THE_CLUSTER: True,
        f"system:serviceaccount:{world.model}:jupyter-controller": False,
        "system:serviceaccount:knative-serving:controller": False,
    }


@pytest.mark.parametrize(
    ("is_allowed", "write"),
    [
        pytest.param(is_allowed, write, id=name)
        for is_allowed, cases in ((True, ALLOWED), (False, REJECTED))
        for name, write in cases.items()
    ],
)
def test_tenants_are_rejected_what_takes_requests_of_others_and_controllers_are_not(
    world, is_allowed, write
):
    found = {user: not world.refusal(write(world), user) for user in whom(world)}
    assert found == {user: is_allowed or not holds for user, holds in whom(world).items()}


def test_policy_is_for_tenants_whom_this_application_serves(own_world):
    world = own_world
    world.reconcile()
    assert eventually(world.is_in_force)

    def is_held(namespace):
        obj = gateway_of(world)
        obj["metadata"]["namespace"] = namespace
        return bool(world.refusal(obj))

    for namespace in (world.model, world.edge, world.foreign):
        assert not is_held(namespace)
    theirs = world.api.get(charm_cluster.NAMESPACE, world.foreign)
    world.api.merge_patch(theirs, {"metadata": {"labels": {names.SERVED_BY: None}}})
    assert eventually(lambda: is_held(world.foreign))
    labels = {names.PART_OF: None, names.SERVED: "enabled"}
    world.api.merge_patch(theirs, {"metadata": {"labels": labels}})
    assert eventually(lambda: is_held(world.foreign))
    world.api.merge_patch(theirs, {"metadata": {"labels": {names.SERVED: "disabled"}}})
    assert eventually(lambda: not is_held(world.foreign))


def test_namespace_is_not_believed_from_a_label_of_a_tenant(world):
    obj = virtual_service(world, path("prefix", "/notebook/bob/"), labels={names.TENANT: "bob"})
    assert world.refusal(obj)


def of_kubeflow(prefix):
    """A route as Kubeflow's controllers of notebooks, TensorBoards and PVC viewers write it."""
    return lambda w: virtual_service(
        w,
        {
            **path("prefix", f"/{prefix}/NAMESPACE/x/"),
            "rewrite": {"uri": "/"},
            "headers": {"request": {"set": {}}},
            "timeout": "300s",
        },
    )


def of_kserve(world):
    """The route of an InferenceService, which KServe's controller writes."""
    host, domain = "x-predictor.NAMESPACE.example.com", "cluster.local"
    regexes = (rf"^x\.NAMESPACE(\.svc(\.{domain})?)?(?::\d{{1,5}})?$", rf"^{host}(?::\d{{1,5}})?$")
    return virtual_service(
        world,
        {
            "match": [
                {"authority": {"regex": regex}, "gateways": ["MODEL/kubeflow-gateway"]}
                for regex in regexes
            ],
            "headers": {"request": {"set": {"Host": host}}},
        },
        gateways=["knative-serving/knative-local-gateway", "MODEL/kubeflow-gateway", "mesh"],
        hosts=[f"x.NAMESPACE.svc.{domain}", "x-NAMESPACE.example.com"],
    )


def of_knative(world):
    """The route of a Knative Ingress, which net-istio writes."""
    return virtual_service(
        world,
        {
            "match": [
                {
                    "authority": {"prefix": "x-predictor.NAMESPACE.example.com"},
                    "headers": {"K-Network-Hash": {"exact": "override"}},
                    "gateways": ["MODEL/kubeflow-gateway"],
                }
            ],
            "retries": {},
        },
        hosts=["x-predictor.NAMESPACE.example.com"],
    )


@pytest.mark.parametrize(
    ("account", "write"),
    [
        pytest.param("MODEL:jupyter-controller", of_kubeflow("notebook"), id="notebook"),
        pytest.param("MODEL:tensorboard-controller", of_kubeflow("tensorboard"), id="tensorboard"),
        pytest.param("MODEL:pvcviewer-operator", of_kubeflow("pvcviewers"), id="pvcviewer"),
        pytest.param("MODEL:kserve-controller", of_kserve, id="KServe"),
        pytest.param("knative-serving:controller", of_knative, id="Knative"),
    ],
)
def test_controllers_of_kubeflow_write_their_routes(world, account, write):
    user = f"system:serviceaccount:{filled(world, account)}"
    assert not world.refusal(write(world), user)
    assert bool(world.refusal(write(world))) == (write in (of_kserve, of_knative))


def rejected(world, obj):
    """The message by which the status names an object."""
    resource = (
        "gateways.networking.istio.io"
        if obj["kind"] == "Gateway"
        else ("virtualservices.networking.istio.io")
    )
    name = obj["metadata"]["name"]
    return (
        f"{obj['kind']} {world.profile}/{name} breaks tenant-policy; run: "
        f"kubectl -n {world.profile} delete {resource} {name}"
    )


def owned(obj):
    """The object as one of a controller."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "name": "x", "uid": "1"}
    return {
        **obj,
        "metadata": {**obj["metadata"], "ownerReferences": [{**owner, "controller": True}]},
    }


def test_what_was_there_before_is_named_until_it_goes_and_can_still_be_deleted(own_world):
    world = own_world
    bad = [
        virtual_service(world, path("prefix", "/"), finalizers=["example.com/x"]),
        gateway_of(world),
        http_route(world, kind="GRPCRoute"),
    ]
    for obj in (*bad, virtual_service(world), owned(of_kserve(world))):
        world.api.create(obj)
    elsewhere = gateway_of(world)
    elsewhere["metadata"]["namespace"] = world.foreign
    world.api.create(elsewhere)
    commands = [each.message.partition("run: ")[2] for each in named(world, 3)]
    assert rejected(world, bad[1]) in {each.message for each in world.reconcile()}
    assert all(isinstance(each, ops.BlockedStatus) for each in world.reconcile())
    for command in commands:
        _, _, namespace, _, resource, obj = command.split()
        assert namespace == world.profile
        kind = next(
            each
            for each in charm_cluster.KINDS.values()
            if f"{each.plural}.{each.api_version.partition('/')[0]}" == resource
        )
        with world.being("alice@example.com") as alice:
            alice.delete(alice.get(kind, obj, namespace))
            if left := alice.get(kind, obj, namespace):
                # A controller removes its finalizer from what stays as it was.
                alice.merge_patch(left, {"metadata": {"finalizers": None}})
    assert named(world, 0) == []


def test_application_without_trust_applies_the_policy_names_what_was_there_and_leaves(
    api, kubeconfig, control_plane, namespace, untrusted
):
    world = World(kubeconfig, api, namespace)
    world.furnish()
    with lightkube.Client(config=untrusted) as client, contextlib.ExitStack() as stack:
        world.app = charm_cluster.Cluster(client)
        held = limits_world.World(namespace, api, world.app)
        stack.enter_context(limits_world.limited(control_plane, held))
        for obj in (virtual_service(world, path("prefix", "/")), gateway_of(world)):
            api.create(obj)
        api.create(kubernetes_gateway(world, "edge.EDGE.svc.cluster.local"))
        api.create(http_route(world, {"matches": [at("PathPrefix", "/")]}))
        api.create(http_route(world, kind="GRPCRoute"))
        named(world, 5)
        world.clean()
        assert world.component()._scope.manifests.owned_in(tenant_policy.FOLDER) == []


def named(world, count):
    """The statuses, once they are that many: an API server notices a policy after a while."""
    assert eventually(lambda: len(world.reconcile()) == count), world.reconcile()
    return world.reconcile()


def test_many_are_named_and_more_than_one_hook_tries_are_said(own_world):
    for _ in range(45):
        own_world.api.create(gateway_of(own_world))
    named(own_world, 45)
    fences.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tenant_policy, "_MOST_TRIED", 21)
        assert len(own_world.reconcile()) == 21
    (reason,) = fences.noted().values()
    assert "more than 21" in reason


def test_object_that_was_there_may_be_changed_to_what_is_allowed_only(own_world):
    world = own_world
    there = world.api.create(virtual_service(world, path("prefix", "/")))
    world.reconcile()
    assert eventually(world.is_in_force)
    with world.being("alice@example.com") as alice:
        with pytest.raises(errors.RefusedError):
            alice.merge_patch(there, {"spec": {"hosts": [HOST]}})
        alice.merge_patch(there, {"spec": virtual_service(world)["spec"]})
        with pytest.raises(errors.RefusedError):
            alice.merge_patch(there, {"spec": there["spec"]})
        labelled = alice.create(pod(world, {"app": "edge"}))
        with pytest.raises(errors.RefusedError):
            alice.merge_patch(labelled, {"metadata": {"labels": LABELS}})


def test_warning_rejects_nothing_and_names_what_breaks_it(own_world, control_plane):
    world = own_world
    world.reconcile(mode="warn")
    obj = gateway_of(world)
    text = json.dumps(obj)
    as_alice = ("--as=alice@example.com", "--as-group=system:masters")

    def warned():
        argv = ("create", "--dry-run=server", "-f", "-", *as_alice)
        return (
            "a Gateway selects pods of its own" in control_plane.kubectl(*argv, text=text).stderr
        )

    assert eventually(warned)
    world.api.create(obj)
    assert world.reconcile(mode="warn") == [ops.ActiveStatus(rejected(world, obj))]


def test_policy_ends_with_the_model(own_world):
    own_world.reconcile()
    assert eventually(own_world.is_in_force)
    metadata = {"name": own_world.model}
    own_world.api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    assert eventually(lambda: not own_world.is_in_force())


def test_last_policy_that_was_off_for_seconds_is_in_force_again(world):
    world.reconcile(mode="off")
    assert eventually(lambda: not world.is_in_force())
    # A second after the last policy with a paramKind is deleted, an API server stops the informer
    # and never starts it again (https://github.com/kubernetes/kubernetes/issues/130887). Nothing
    # shows that it has stopped.
    time.sleep(3)
    world.reconcile()
    assert eventually(world.is_in_force)


def test_command_of_the_page_ends_the_policy(own_world, control_plane):
    """docs/how-to/clean-up.md."""
    own_world.reconcile()
    assert eventually(own_world.is_in_force)
    name = "test_command_of_the_page_ends_the_policy"
    (block,) = (each for each in COMMANDS["blocks"](ROOT) if each.what == name)
    program, *argv = block.text.replace("kubeflow", own_world.model).split()
    assert program == "kubectl"
    control_plane.kubectl(*argv)
    assert eventually(lambda: not own_world.is_in_force())


def test_hosts_of_the_model_are_followed(own_world):
    world = own_world
    world.reconcile()
    assert eventually(world.is_in_force)
    assert not world.refusal(virtual_service(world, hosts=[HOST]))
    world.reconcile(hosts=())
    assert eventually(lambda: world.refusal(virtual_service(world, hosts=[HOST])))
    assert not world.refusal(virtual_service(world))


def test_host_that_reads_like_an_expression_is_one_host(own_world):
    world = own_world
    odd = '\\"] + ["kf.example.org", "\n\x7f\U0001f600'
    world.reconcile(hosts=(odd,))
    assert eventually(world.is_in_force)
    assert world.refusal(virtual_service(world, hosts=["kf.example.org"]))
    assert not world.refusal(virtual_service(world, hosts=[odd]))


def test_api_server_finds_no_fault_with_the_types_in_the_policy(world):
    kind = charm_cluster.VALIDATING_POLICY
    (policy,) = world.component()._scope.manifests.owned_of(kind)
    assert eventually(
        lambda: "typeChecking" in world.api.get(kind, policy["metadata"]["name"])["status"]
    )
    found = world.api.get(kind, policy["metadata"]["name"])["status"]["typeChecking"]
    assert found.get("expressionWarnings", []) == []
