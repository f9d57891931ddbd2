"""A Gateway of the Gateway API that others have: our routes and guard on it, and nothing else."""

import contextlib
import itertools
import json

import lightkube
import pytest
from lightkube.config import kubeconfig as config_files
from lightkube.config import models as config_models

from integrator_contract import names
from istio_integrator.kube import cluster as charm_cluster
from testbed import loopback
from tests import echo, gateway_client, rights, waiting
from tests.functional import gateway_api_world as world
from tests.functional import ingress_world, istiod_world, unasked_cases
from tests.functional.test_gateway_api_unasked import GUARDED, OPENED, match, stealing
from tests.functional.unasked_cases import COOKIE, HOST, VICTIM, identities

MODEL = ingress_world.MODEL
TENANT = gateway_client.TENANT
EDGE = "edge"
SHARED = {"name": "shared", "namespace": EDGE}
CLAIM = {"kubeflow-userid": VICTIM, "kubeflow_userid": VICTIM}


def listener(name, port, host, **more):
    """A way in for routes of every namespace."""
    protocol = {80: "HTTP", 443: "HTTPS"}[port]
    reference = {"kind": "Secret", "name": ingress_world.SECRET}
    tls = {"tls": {"mode": "Terminate", "certificateRefs": [reference]}} if port == 443 else {}
    allowed = {"namespaces": {"from": "All"}}
    said = {"name": name, "port": port, "protocol": protocol, "hostname": host, **tls}
    return {**said, "allowedRoutes": allowed, **more}


LISTENERS = [
    listener("ours", 80, HOST),
    listener("ours-secure", 443, HOST),
    listener("theirs", 80, TENANT),
    listener("theirs-secure", 443, TENANT),
]


def shared(*listeners, **spec):
    """The Gateway of somebody who is none of us."""
    return {
        "apiVersion": f"{world.GROUP}/v1",
        "kind": "Gateway",
        "metadata": dict(SHARED),
        "spec": {"gatewayClassName": "istio", "listeners": [*listeners], **spec},
    }


def tenant():
    """A route of theirs, to an application of theirs."""
    rule = {"matches": [match("PathPrefix", "/")], "backendRefs": [{"name": "web", "port": 80}]}
    return world.route("web", rule, parent=SHARED, hostnames=[TENANT])


@pytest.fixture(scope="module")
def place(client, kubeconfig, tmp_path_factory):
    """A Gateway that serves a tenant, and a model whose operator names it."""
    folder = tmp_path_factory.mktemp("istiod")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(echo.serving(echo.Application))
        more = {"open": server.server_port}
        found = stack.enter_context(
            world.furnished(client, kubeconfig, folder, more, namespaces=("shop", EDGE))
        )
        found.unguarded = server.asked
        secret = ingress_world.secret(folder)
        secret["metadata"]["namespace"] = EDGE
        for obj in (secret, shared(*LISTENERS), tenant()):
            found.api.create(obj)
        ports = {80: found.port, 443: found.https_port}
        token = world.run_workload(client, "shared-istio", EDGE, ports, {80, 443})
        labels = {names.GATEWAY_NAME: "shared"}
        stack.enter_context(
            istiod_world.gateway(
                folder, found.xds, found.admin, token, namespace=EDGE, labels=labels
            )
        )
        found.options |= {"gateway": f"{EDGE}/shared", "gateway_service": "", "hosts": HOST}
        for tls in ("", TENANT):
            found.eventually(200, "/", host=TENANT, tls=tls)
        yield found
        found.part().remove()


@pytest.fixture
def opened(place):
    """The same with the model's routes on it, some of which are open to everybody."""
    place.auths = [ingress_world.COMPLETE]
    place.newer = [OPENED, GUARDED]
    said = place.reconcile()
    for tls in ("", HOST):
        place.eventually(200, "/open/x", tls=tls)
        place.eventually(302, "/pipeline/x", tls=tls)
    for asked in (place.application, place.unguarded, place.asked):
        asked.clear()
    place.said = said
    return place


def theirs(place):
    """What is somebody else's, as it would differ if anybody wrote it."""
    found = [
        place.api.get(charm_cluster.KUBERNETES_GATEWAY, "shared", EDGE),
        place.api.get(charm_cluster.HTTP_ROUTE, "web", "shop"),
        place.api.get(charm_cluster.SERVICE, "shared-istio", EDGE),
        place.api.get(charm_cluster.DEPLOYMENT, "shared-istio", EDGE),
    ]
    return [
        {
            **{key: obj["metadata"].get(key) for key in ("generation", "labels", "annotations")},
            "spec": obj["spec"],
        }
        for obj in found
    ]


class TestUnasked(unasked_cases.Unasked):
    """What holds for routes about which nobody is asked holds on this Gateway, too."""

    def name(self, opened):
        """The name by which the guard knows the routes."""
        return next(
            rule["name"]
            for route in opened.api.list(charm_cluster.HTTP_ROUTE, MODEL)
            for rule in route["spec"]["rules"]
            if "name" in rule
        )

    def stolen(self, name):
        return stealing(name, parent=SHARED, hostnames=[HOST])

    def apply(self, opened):
        """Have the cluster be as the place says."""
        opened.reconcile()


@pytest.mark.parametrize("tls", ["", HOST], ids=["http", "https"])
def test_strangers_are_refused_and_users_come_under_their_own_name(opened, tls):
    for host in (HOST, HOST.upper(), f"{HOST}:80", f"{HOST}:9999"):
        assert opened.asked_once(host=host, tls=tls, **CLAIM).status == 302, host
    assert opened.application == []
    answer = opened.asked_once(tls=tls, Cookie=COOKIE, **CLAIM)
    assert answer.status == 200
    assert identities([answer.echo]) == [echo.USER]
    assert VICTIM not in json.dumps(answer.echo)


def test_status_says_where_it_is_reached(opened):
    assert any("Gateway edge/shared at 203.0.113.7" in said for said in opened.said), opened.said


def test_others_are_not_asked_about_and_keep_what_they_say_of_a_user(opened):
    for tls in ("", TENANT):
        answer = opened.asked_once("/", host=TENANT, tls=tls, **CLAIM)
        assert answer.status == 200
        assert answer.echo["headers"]["kubeflow-userid"] == VICTIM
    assert opened.asked == []


def test_tenant_notices_nothing_while_we_come_and_go_and_nobody_passes_unasked(opened):
    before = theirs(opened)
    tenants = [
        gateway_client.Hammer(opened.visitor(tls=tls), fresh=fresh, host=TENANT, pause=0.01)
        for tls, fresh in itertools.product(("", TENANT), (False, True))
    ]
    strangers = [
        gateway_client.Hammer(opened.visitor(tls=tls), fresh=True, path="/kfp/x", pause=0.01)
        for tls in ("", HOST)
    ]
    opened.application.clear()

    def served(want, path="/kfp/x", **given):
        opened.eventually(want, path, Cookie=COOKIE, **given)
        everybody = [(each, each.count) for each in (*tenants, *strangers)]
        assert waiting.eventually(lambda: all(each.count > count + 5 for each, count in everybody))

    with contextlib.ExitStack() as stack:
        for each in (*tenants, *strangers):
            stack.enter_context(each)
        served(200)
        opened.part().remove()
        served(404)
        opened.reconcile()
        served(200)
        assert not any(403 in each.answers for each in strangers)
        opened.auths = []
        opened.reconcile()
        served(404)
        opened.auths = [ingress_world.COMPLETE]
        opened.reconcile()
        served(200)
        for each in strangers:
            # The guard is closed while there is nobody to ask, and Envoy hears of it and of the
            # routes one after the other.
            each.answers.pop(403, None)
        related, opened.requests = opened.requests, []
        newer, opened.newer = opened.newer, []
        opened.reconcile()
        served(404)
        opened.requests, opened.newer = related, newer
        opened.reconcile()
        served(200)
    for each in tenants:
        assert set(each.answers) == {200}, each.answers
    for each in strangers:
        assert set(each.answers) <= {302, 404}, each.answers
    assert theirs(opened) == before


def test_connections_from_before_the_guard_are_waited_for(opened):
    """They have none of its filters, and would get our routes."""
    opened.part().remove()
    opened.eventually(404)
    with contextlib.closing(opened.visitor()) as early:
        assert early.get(host=TENANT).status == 200
        opened.later, later = opened.later * 0, opened.later
        try:
            said = opened.reconcile()
            assert any("earlier connections" in each for each in said), said
            assert opened.api.list(charm_cluster.HTTP_ROUTE, MODEL) == []
            assert early.get("/kfp/x").status == 404
        finally:
            opened.later = later
    opened.reconcile()
    opened.eventually(200, Cookie=COOKIE)
    assert opened.asked_once().status == 302


def test_owner_who_shuts_us_out_is_named_and_finds_the_guard_when_they_let_us_in(opened):
    same = {"namespaces": {"from": "Same"}}
    shut = [{**each, "allowedRoutes": same} for each in LISTENERS[:2]]
    opened.api.apply(shared(*shut, *LISTENERS[2:]))
    opened.eventually(404, Cookie=COOKIE)
    said = opened.reconcile()
    assert any("no listener for this model" in each for each in said), said
    assert opened.asked_once("/", host=TENANT).status == 200
    stranger = gateway_client.Hammer(opened.visitor(), fresh=True, path="/kfp/x", pause=0.01)
    with stranger:
        opened.api.apply(shared(*LISTENERS))
        opened.eventually(200, Cookie=COOKIE)
    assert set(stranger.answers) <= {302, 404}, stranger.answers


def test_shipped_roles_suffice_to_come_and_go(opened, control_plane, kubeconfig):
    text = "---\n".join(
        (rights.roles(MODEL), rights.gateway_namespace(MODEL, EDGE, "shared-istio"))
    )
    account = ("-n", MODEL, "create", "serviceaccount", rights.APPLICATION)
    control_plane.kubectl(*account)
    control_plane.kubectl("apply", "-f", "-", text=text)
    made = control_plane.kubectl("-n", MODEL, "create", "token", rights.APPLICATION)
    user = config_models.User(token=made.stdout.strip())
    config = config_files.KubeConfig.from_file(kubeconfig).get()._replace(user=user)
    trusted = opened.api
    opened.part().remove()
    try:
        with lightkube.Client(config=config) as untrusted:
            opened.api = charm_cluster.Cluster(untrusted)
            opened.reconcile()
            opened.eventually(200, Cookie=COOKIE)
            assert opened.asked_once().status == 302
            opened.part().remove()
            opened.eventually(404)
    finally:
        opened.api = trusted
        control_plane.kubectl("delete", "-f", "-", text=text)
    assert opened.part()._scope.manifests.owned() == []


def test_removal_leaves_what_was_there_and_nothing_of_ours(opened):
    before = theirs(opened)
    part = opened.part()
    part.remove()
    assert part._scope.manifests.owned() == []
    assert theirs(opened) == before
    assert opened.asked_once("/", host=TENANT).status == 200


@pytest.fixture
def manual(opened, client, tmp_path):
    """A Gateway that somebody binds to pods of their own, by the name of their Service."""
    marks = {"app": "way-in"}
    metadata = {"name": "way-in", "namespace": EDGE}
    port, admin = loopback.free_ports(2)
    container = {"name": "istio-proxy", "image": "proxy", "args": ["proxy", "router"]}
    template = {"metadata": {"labels": marks}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": marks}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
    ports = [{"name": "http", "port": 80, "targetPort": port}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    address = {"type": "Hostname", "value": f"way-in.{EDGE}.svc.{ingress_world.DOMAIN}"}
    _, slices = ingress_world.service(EDGE, "way-in", port)
    bound = shared(LISTENERS[0], LISTENERS[2], addresses=[address])
    bound["metadata"]["name"] = "manual"
    parent = {**SHARED, "name": "manual"}
    rule = {"matches": [match("PathPrefix", "/")], "backendRefs": [{"name": "web", "port": 80}]}
    there = (
        {**deployment, "spec": spec},
        {**service, "spec": {"selector": marks, "ports": ports}},
        slices,
        bound,
        world.route("manual", rule, parent=parent, hostnames=[TENANT]),
    )
    token = istiod_world.gateway_token(client, EDGE)
    before, opened.port = opened.port, port
    with opened.there(*there):
        opened.options["gateway"] = f"{EDGE}/manual"
        with istiod_world.gateway(
            tmp_path, opened.xds, admin, token, namespace=EDGE, labels=marks
        ):
            yield opened
        opened.port = before
        opened.options["gateway"] = f"{EDGE}/shared"
        opened.reconcile()


def test_gateway_bound_to_a_service_is_guarded_before_that_ones_pods(manual):
    manual.eventually(200, "/", host=TENANT)
    assert waiting.eventually(
        lambda: any("by edge/way-in" in said for said in manual.reconcile())
    ), manual.reconcile()
    manual.eventually(200, Cookie=COOKIE)
    manual.application.clear()
    assert manual.asked_once(**CLAIM).status == 302
    assert manual.application == []
    answer = manual.asked_once(Cookie=COOKIE, **CLAIM)
    assert identities([answer.echo]) == [echo.USER]
    assert manual.asked_once("/", host=TENANT, **CLAIM).status == 200
