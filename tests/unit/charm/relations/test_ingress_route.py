"""The wire format of istio_ingress_route, with the library that charms use on the other side."""

import json

import ops
import pytest
from charmlibs.interfaces import istio_ingress_route as library
from hypothesis import given
from hypothesis import strategies as st
from ops import testing

from istio_integrator.relations import ingress_route
from tests.unit.charm.ingress import wishes

FULL = library.IstioIngressRouteConfig(
    model="kubeflow",
    listeners=[library.Listener(port=80, protocol=library.ProtocolType.HTTP)],
    http_routes=[
        library.HTTPRoute(
            name="http-ingress",
            listener=library.Listener(port=443, protocol=library.ProtocolType.HTTP),
            backends=[library.BackendRef(service="jupyter-ui", port=5000, weight=7)],
            hostnames=["kf.example.com"],
            matches=[
                library.HTTPRouteMatch(
                    path=library.HTTPPathMatch(
                        type=library.HTTPPathMatchType.Exact, value="/jupyter/"
                    ),
                    method=library.HTTPMethod.GET,
                    headers={"X-A": "b"},
                )
            ],
            filters=[
                library.URLRewriteFilter(
                    urlRewrite=library.URLRewriteSpec(
                        hostname="in.example.com",
                        path=library.PathModifier(
                            type=library.PathModifierType.ReplacePrefixMatch, value="/"
                        ),
                    )
                ),
                library.RequestRedirectFilter(
                    requestRedirect=library.RequestRedirectSpec(
                        scheme="https",
                        hostname="b.example.com",
                        port=8443,
                        statusCode=308,
                        path=library.PathModifier(
                            type=library.PathModifierType.ReplaceFullPath, value="/x"
                        ),
                    )
                ),
            ],
        )
    ],
    grpc_routes=[
        library.GRPCRoute(
            name="calls",
            listener=library.Listener(port=80, protocol=library.ProtocolType.GRPC),
            backends=[library.BackendRef(service="envoy", port=9090)],
            matches=[
                library.GRPCRouteMatch(
                    method=library.GRPCMethodMatch(service="ml.Store", method="Get"),
                    headers={"x-b": "c"},
                )
            ],
        )
    ],
)


class Requirer(ops.CharmBase):
    """A charm that asks for routes, as Kubeflow's do."""

    wanted = FULL

    def __init__(self, framework):
        super().__init__(framework)
        self.route = library.IstioIngressRouteRequirer(self, wishes.ASKED)
        framework.observe(self.route.on.ready, self._submit)
        framework.observe(self.on.config_changed, self._submit)

    def _submit(self, _):
        self.told = (self.route.external_host, self.route.tls_enabled)
        self.unit.status = ops.ActiveStatus(f"{self.told}")
        if self.unit.is_leader():
            self.route.submit_config(self.wanted)


META = {
    "name": "jupyter-ui",
    "requires": {wishes.ASKED: {"interface": "istio_ingress_route"}},
}


def requirer(event="relation_changed", **answered):
    """Run the charm on the other side; its relation and its status come back."""
    ctx = testing.Context(Requirer, meta=META)
    relation = testing.Relation(wishes.ASKED, remote_app_data=answered)
    state = testing.State(leader=True, relations={relation})
    out = ctx.run(getattr(ctx.on, event)(relation), state)
    return out.get_relation(relation.id).local_app_data, out.unit_status.message


def test_what_the_library_writes_is_read():
    bag, _ = requirer()
    config, problem = ingress_route.read(bag[ingress_route.CONFIG])
    assert problem == ""
    (http,), (grpc,) = config.http_routes, config.grpc_routes
    assert (config.model, http.name, http.listener.port) == ("kubeflow", "http-ingress", 443)
    (backend,) = http.backends
    assert (backend.service, backend.port) == ("jupyter-ui", 5000)
    (match,) = http.matches
    assert (match.path.type, match.path.value) == ("Exact", "/jupyter/")
    rewrite, redirect = http.filters
    assert rewrite.url_rewrite.path.type == "ReplacePrefixMatch"
    assert rewrite.url_rewrite.path.value == "/"
    assert redirect.url_rewrite is None
    (call,) = grpc.matches
    assert (call.method.service, call.method.method) == ("ml.Store", "Get")
    # What is not served is refused by the name of the route.
    assert match.method
    assert match.headers
    assert call.headers
    assert http.hostnames
    assert rewrite.url_rewrite.hostname


@pytest.mark.parametrize(("tls", "word"), [(True, "True"), (False, "False")])
def test_answer_is_what_the_library_reads(tls, word):
    written = []

    class Related:
        def write(self, endpoint, bag):
            written.append((endpoint, dict(bag)))

    ingress_route.answer(Related(), external_host="kf.example.com", tls_enabled=tls)
    assert [endpoint for endpoint, _ in written] == [wishes.ASKED, wishes.OPEN]
    bag = written[0][1]
    assert bag == {"external_host": "kf.example.com", "tls_enabled": word}
    _, message = requirer(**bag)
    assert message == str(("kf.example.com", tls))


GOOD = wishes.config(wishes.route(wishes.match("/a")))


def changed(**changes):
    return {**GOOD["http_routes"][0], **changes}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("[]", "valid dictionary"),
        ("null", "valid dictionary"),
        ('{"model": 1}', "valid string"),
        ("{}", "model field required"),
        ('{"model": "A b"}', "is not a name"),
        ("[" * 5000, "nests more than"),
        ('{"model": ' + "[" * 70 + "]" * 70 + "}", "nests more than"),
        ('{"model": "k", "x": ' + "9" * 5000 + "}", "number of 5000 characters"),
        ('{"model": "k", "x": NaN}', "NaN"),
        ('{"model": "\\ud800"}', "half a character"),
        (json.dumps({"model": "k", "http_routes": [0] * 100_000}), "characters"),
        ('{"model": "k", "http_routes": [0' + ",0" * 25_000 + "]}", "more than 20000 values"),
        (json.dumps(wishes.config(*[changed()] * 129)), "at most 128"),
        (json.dumps(wishes.config(changed(matches=[{}] * 17))), "at most 16"),
        (json.dumps(wishes.config(changed(name=5))), "valid string"),
        (json.dumps(wishes.config(changed(name="x" * 254))), "at most 253"),
        (json.dumps(wishes.config(changed(listener={"port": 0, "protocol": "HTTP"}))), "port=0"),
        (json.dumps(wishes.config(changed(listener={"port": 80, "protocol": "TCP"}))), "'HTTP'"),
        (json.dumps(wishes.config(changed(backends=[{"service": "a.b", "port": 1}]))), "a name"),
        (json.dumps(wishes.config(changed(backends=[{"service": "a", "port": "1"}]))), "integer"),
        (json.dumps(wishes.config(changed(matches=[wishes.match("a")]))), "path such as"),
        (json.dumps(wishes.config(changed(matches=[wishes.match("/a?b")]))), "path such as"),
        (json.dumps(wishes.config(changed(matches=[wishes.match("/" + "a" * 300)]))), "at most"),
        (
            json.dumps(wishes.config(grpc=[changed(matches=[{"method": {"service": "a/b"}}])])),
            "package.Service",
        ),
    ],
)
def test_what_cannot_be_read_is_said_and_is_nothing(text, words):
    config, problem = ingress_route.read(text)
    assert config is None
    assert words in problem
    assert len(problem) <= 400
    assert problem.isprintable()


def test_nothing_written_yet_is_waited_for():
    assert ingress_route.read("") == (None, "")


def test_key_that_is_there_twice_counts_once():
    text = json.dumps(GOOD)
    config, problem = ingress_route.read(text[:-1] + ', "model": "other"}')
    assert (config.model, problem) == ("other", "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=20,
)
PLACES = st.sampled_from(
    ["model", "http_routes", "grpc_routes", "name", "backends", "matches", "filters", "hostnames"]
)


@given(PLACES, JSON)
def test_whatever_stands_somewhere_is_read_or_said(place, value):
    said = json.loads(json.dumps(GOOD))
    if place in said:
        said[place] = value
    else:
        said["http_routes"][0][place] = value
    config, problem = ingress_route.read(json.dumps(said))
    assert (config is None) == bool(problem)
    if config:
        # What is read can be served, or is refused by a name.
        wishes.plan(
            ingress_route.Received(
                endpoint=wishes.ASKED, relation=1, application="app", message=config
            )
        )
