"""Who may write what at the model's gateway, and what strangers, users and the status get.

Each row is an object by which a tenant stopped all routes, took sessions or passed the guard.
"""

import contextlib
import json
from typing import NamedTuple

import pytest

from integrator_contract import names
from testbed import loopback
from tests import echo, rights, waiting
from tests.api import ApiError
from tests.functional import gateway_api_world, ingress_world, istiod_world
from tests.functional import test_tenant_policy as policy
from tests.functional.ingress_world import MODEL, NETWORKING, gateway, lead
from tests.functional.test_guard_tenants import changes
from tests.functional.test_tenant_policy import GATEWAY_API, http_route, virtual_service
from tests.gateway_client import HOST
from tests.kubernetes_objects import made, namespace_of

PROFILE = "workgroup"
"""A tenant's namespace, named like a path of the dashboard."""
WRITERS = {
    "tenant": ("alice@example.com", PROFILE),
    # It copies the prefix of a tenant's PVCViewer, as the notebook controller copies headers.
    "controller": (f"system:serviceaccount:{MODEL}:pvcviewer-controller", PROFILE),
    "team": ("bob@example.com", "shop"),
}
"""Users, and the namespace in which each writes; the last is not served."""
SELECTORS = {
    "named": istiod_world.LABELS,
    "own": ingress_world.OWN_LABELS,
    "gateway-api": {names.GATEWAY_NAME: gateway_api_world.NAME},
}
"""The labels of each gateway's pods."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


class Row(NamedTuple):
    """An attack as an entry of a VirtualService and as a rule of an HTTPRoute."""

    entry: dict
    rule: dict
    path: str = "/notebook/NAMESPACE/x/"
    """What it would take."""
    words: str = ""
    """Of the tenant policy's rule; empty: all may write it."""
    taken_by: str = "named own gateway-api"
    """The gateways where users get the other team's answer."""

    def of(self, place, space):
        """Return the object and the path for a namespace."""
        obj = http_route(self.rule) if place.kind == "gateway-api" else virtual_service(self.entry)
        text = json.dumps([obj, self.path]).replace("MODEL", MODEL)
        return json.loads(text.replace("NAMESPACE", space))


def frozen(entry, rule):
    return Row(entry, rule, words="Envoy refuses all routes of a gateway for one", taken_by="")


def prefixed(path, words="each match of a route of", **more):
    return Row(policy.path("prefix", path), policy.at("PathPrefix", path), path, words, **more)


ROWS = {
    "a header": frozen(
        policy.header("x", "%A%"), policy.modified(set=[{"name": "x", "value": "a%b"}])
    ),
    "a rewrite": frozen(
        {"rewrite": {"uri": "/a\nb"}},
        policy.rewritten({"type": "ReplaceFullPath", "replaceFullPath": "/a\nb"}),
    ),
    "sessions of the dashboard": prefixed("/api/workgroup/"),
    # istiod sorts HTTPRoutes by their paths, and VirtualServices by their age.
    "a word of an application": prefixed("/kfp/NAMESPACE/x/", taken_by="gateway-api"),
    "basePrefix of a PVCViewer": prefixed("/notebook/bob/NAMESPACE/x/"),
    "usual prefix of a PVCViewer": prefixed("/pvcviewers/NAMESPACE/x/", words=""),
}


@pytest.fixture(scope="module", params=SELECTORS)
def place(request, client, kubeconfig, tmp_path_factory):
    """A model at a gateway, a tenant's namespace that it serves, and another team's."""
    world = gateway_api_world if request.param == "gateway-api" else ingress_world
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("istiod")
        found = stack.enter_context(world.serving(client, kubeconfig, folder))
        found.kind = request.param
        if found.kind == "own":
            found.options = {"gateway_service": "", "hosts": ""}
            stack.enter_context(ingress_world.own_gateway(found, tmp_path_factory.mktemp("own")))
        served = {names.PART_OF: names.PROFILE, names.SERVED_BY: f"{MODEL}.{rights.APPLICATION}"}
        (port,) = found.api.get("EndpointSlice", "web", "shop")["ports"]
        backend = ingress_world.service(PROFILE, "web", port["port"])
        stack.enter_context(found.there(namespace_of(PROFILE, **served), *backend))
        found.writers = {
            name: stack.enter_context(ingress_world.being(kubeconfig, user))
            for name, (user, _) in WRITERS.items()
        }
        found.reconcile()
        found.eventually(200, Cookie=echo.COOKIE)
        bad, _ = ROWS["a header"].of(found, PROFILE)
        assert waiting.eventually(lambda: rejection(found, "tenant", bad))
        yield found
        found.remove()


def rejection(place, writer, obj):
    """Return why a writer may not create an object; empty if they may."""
    try:
        place.writers[writer].create(obj, dry_run=True)
    except ApiError as error:
        return error.message
    return ""


def answers(place, path):
    """Return what strangers and users get at a path, and whose application users reach."""
    place.application.clear()
    place.theirs.clear()
    got = place.status(path), place.status(path, Cookie=echo.COOKIE)
    return (*got, "ours" if place.application else "theirs" if place.theirs else "")


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_only_another_team_writes_what_harms_and_strangers_get_nothing_by_it(place, row):
    for writer, (_, space) in WRITERS.items():
        obj, path = row.of(place, space)
        words = rejection(place, writer, obj)
        is_rejected = bool(row.words) and writer != "team"
        assert (bool(words), row.words in words) == (is_rejected, is_rejected or not row.words)
        if is_rejected:
            continue
        before = sum(changes(place))
        with place.there(obj):
            assert waiting.eventually(lambda seen=before: sum(changes(place)) > seen)
            place.requests.append(ingress_world.request(4, "kfp", "/more", None))
            said = place.reconcile()
            taken = "theirs" if place.kind in row.taken_by else "ours"
            assert answers(place, f"{path}y") == (302, 200, taken)
            assert answers(place, "/kfp/x") == (302, 200, "ours")
            named = [each for each in said if "breaks tenant-policy" in each]
            assert (len(named), any("4 routes served" in each for each in said)) == (
                (1, False) if row.words.startswith("Envoy") else (0, True)
            ), [*said]
        place.requests.pop()
        place.reconcile()


def bound(place, space):
    """Return routes for TCP and TLS at the model's Gateway, whose servers are for HTTP."""
    if place.kind == "gateway-api":
        parents = [{"name": "kubeflow-gateway", "namespace": MODEL}]
        spec = {"parentRefs": parents, "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}
        yield made(GATEWAY_API, "TCPRoute", "bound", space, spec)
        yield made(GATEWAY_API, "TLSRoute", "bound", space, {**spec, "hostnames": [HOST]})
    else:
        to = {"route": lead(ingress_world.WEB)}
        tls = [{"match": [{"port": 443, "sniHosts": [HOST]}], **to}]
        spec = {"hosts": ["*"], "gateways": [ingress_world.OURS], "tcp": [to], "tls": tls}
        yield made(NETWORKING, "VirtualService", "bound", space, spec)


def test_routes_for_tcp_and_tls_lead_nowhere_and_only_another_team_opens_a_port(place):
    tcp = {"port": {"number": loopback.free_port(), "name": "tcp", "protocol": "TCP"}}
    for writer, (_, space) in WRITERS.items():
        port = gateway(space, "tcp", {**tcp, "hosts": ["*"]}, labels=SELECTORS[place.kind])
        words = rejection(place, writer, port)
        assert ("a Gateway selects pods of its own" in words) == (writer != "team")
        objects = [*bound(place, space), *([] if words else [port])]
        assert not any(rejection(place, writer, obj) for obj in objects)
        with place.there(*objects):
            place.requests.append(ingress_world.request(4, "kfp", "/more", None))
            said = place.reconcile()
            for path in ("/kfp/x", "/x"):
                assert answers(place, path) == (302, 200, "ours")
            assert any("4 routes served" in each for each in said), [*said]
            if place.kind == "gateway-api":
                # istiod 1.31 serves there no Gateway of another namespace.
                opened = istiod_world.administration(place.admin, "listeners")
                assert f":{tcp['port']['number']}" not in opened
        place.requests.pop()
        place.reconcile()
