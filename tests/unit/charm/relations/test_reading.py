"""Other applications' data bags are read, awaited, or rejected with the reason."""

import collections
import functools
import json
import types
import typing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from istio_integrator.relations import endpoints, ingress_route, kubeflow, service_mesh
from tests.unit.cases import cases
from tests.unit.charm.ingress import wishes
from tests.unit.hostile_texts import DEEP, MERGED

LONG = "9" * 5000
ingress = functools.partial(kubeflow.read_request, models=kubeflow.INGRESS_MODELS)


def bag(data, versions="[v1]"):
    """A data bag of serialized-data-interface."""
    return {kubeflow.VERSIONS: versions, kubeflow.DATA: data}


def asks(**changes):
    """A request for a route, with other fields."""
    return bag(json.dumps({"service": "a", "port": 80, "prefix": "/a", **changes}))


def auth(address="http://oauth2-proxy.kf.svc:4180", **more):
    """A data bag of `forward_auth`."""
    return {"decisions_address": address, "app_names": "[]", **more}


HOSTILE = {
    "merge keys": (MERGED, "has an alias or an anchor"),
    "brackets": (DEEP, "nests more than 64"),
    "an escape sequence": (
        '{service: a, port: 1, prefix: "/\\e[2J"}',
        "prefix='/\\x1b[2J' is not a path",
    ),
    "many mistakes": (
        json.dumps({"service": 5, "port": 1, "prefix": 5, "namespace": 6, "rewrite": 7}),
        "and 1 more",
    ),
    "a long path": (
        f"{{service: a, port: 1, prefix: /{'a' * 256}}}",
        "longer than 256 characters",
    ),
}
REQUESTS = [
    *((bag(text), problem) for text, problem in HOSTILE.values()),
    (bag(asks()["data"], "[v3]"), "none of the versions"),
    (bag(asks()["data"], "v1"), "none of the versions"),
    (bag(asks()["data"], "["), "is not valid YAML"),
    (bag("{"), "is not valid YAML"),
    (bag("[1]"), "data"),
    (asks(port=True), "port"),
    (asks(port=0), "port=0"),
    (asks(port=65536), "port=65536"),
    (asks(prefix="a"), "prefix='a'"),
    *((asks(prefix=f"/a{each}b"), "is not a path") for each in " ?#"),
    (asks(service="a.b"), "service='a.b'"),
    (asks(service="a" * 64), "is not a name"),
    # As charms.traefik_k8s.v2.ingress writes it, and v1, whose values are plain words.
    (
        {"model": '"cos"', "name": '"p"', "port": "9", "scheme": '"http"'},
        "Traefik's ingress, which",
    ),
    (
        {"model": "cos", "name": "p", "port": "9"},
        "remove this relation and relate it to traefik-k8s",
    ),
]
AUTHS = [
    (auth("https://a.b.svc"), "does not begin with http://"),
    (auth("a.b.svc:80"), "does not begin with http://"),
    (auth("http://a.b.svc/x?"), "has more than"),
    (auth("http://a.b.svc/x#"), "has more than"),
    (auth("http://u:p@a.b.svc/"), "has more than"),
    (auth("http://a.b.svc:99999"), "ort out of range"),
    (auth("http://a.b.svc:x"), "decisions_address"),
    (auth("http://a.b.svc:0"), "port 0"),
    (auth("http://[::1"), "decisions_address"),
    (auth("http:///x"), "has no host"),
    (auth("http://a.b.svc/\n"), "is not a URL"),
    (auth("http://a.b.svc/\x1b[2J"), "is not a URL"),
    (auth("http://a.b.svc/" + "x" * 498), "longer than 512 characters"),
    (auth(headers="kubeflow-userid"), "headers='kubeflow-userid' is no JSON"),
    (auth(headers='["a b"]'), "is not the name of a header"),
    (auth(headers='["a\\nb"]'), "is not the name of a header"),
    (auth(headers=json.dumps(["a" * 129])), "is not the name of a header"),
    (auth(headers=json.dumps([f"a{n}" for n in range(65)])), "has more than 64 headers"),
    (auth(headers=json.dumps([5])), "headers"),
    (auth(headers='{"a": "b"}'), "headers"),
]


def calls(*methods):
    """The data of `istio_ingress_route` with a route of gRPC for each method."""
    return json.dumps(wishes.config(grpc=[wishes.route({"method": each}) for each in methods]))


STORE = {"service": "ml_v1._Store2", "method": "x" * 256}


def routes(*http, **changes):
    """The data of `istio_ingress_route`, with other values of fields of its route."""
    good = wishes.config(wishes.route(wishes.match("/a")))["http_routes"][0]
    return json.dumps(wishes.config(*(http or [{**good, **changes}])))


ROUTES = [
    # Other documents that nobody should read are rows of contract/test_bounded.py.
    (DEEP, "nests more than"),
    ("{", "no JSON"),
    ("[]", "valid dictionary"),
    ('{"model": 1}', "valid string"),
    ("{}", "model field required"),
    ('{"model": "A b"}', "is not a name"),
    (routes(*[json.loads(routes())["http_routes"][0]] * 129), "at most 128"),
    (calls(*[STORE] * 129), "at most 128"),
    *((routes(**{key: [{}] * 17}), "at most 16") for key in ("matches", "filters")),
    (routes(backends=[{"service": "a", "port": 1}] * 17), "at most 16"),
    (routes(name=5), "valid string"),
    (routes(name="x" * 254), "at most 253"),
    (routes(listener={"port": 0, "protocol": "HTTP"}), "port=0"),
    (routes(listener={"port": 80, "protocol": "TCP"}), "'HTTP'"),
    (routes(backends=[{"service": "a.b", "port": 1}]), "a name"),
    (routes(backends=[{"service": "a", "port": "1"}]), "integer"),
    (routes(matches=[wishes.match("a")]), "path such as"),
    (routes(matches=[wishes.match("/a?b")]), "path such as"),
    (routes(matches=[wishes.match("/" + "a" * 256)]), "at most 256"),
    (routes(matches=[wishes.match("", "RegularExpression")]), "at least 1"),
    *((calls({"service": each}), "package.Service") for each in ("a/b", "a.", "1a")),
    (calls({"service": "x" * 257}), "at most 256"),
]


@pytest.mark.parametrize(
    ("read", "given", "problem"),
    [
        *((ingress, *row) for row in REQUESTS),
        *((kubeflow.read_forward_auth_bag, *row) for row in AUTHS),
        *((ingress_route.read_config, *row) for row in ROUTES),
    ],
)
def test_what_nobody_should_read_is_a_problem_of_its_sender(read, given, problem):
    message, said = read(given)
    assert message is None
    assert problem in said
    assert said.isprintable()
    assert len(said) < 500


@cases(
    ("read", "given"),
    nothing=(ingress, {}),
    versions=(ingress, {"_supported_versions": "[v1]"}),
    data_without_versions=(ingress, {"data": asks()["data"]}),
    empty_data=(ingress, bag("{}")),
    unknown_versions_of_empty_data=(ingress, bag("{}", "[1, 7]")),
    no_model=(ingress, {"name": "p", "port": "9"}),
    no_port=(ingress, {"name": "p", "model": "cos"}),
    two_interfaces_at_once=(ingress, {"model": "cos", "name": "p", "port": "9", "data": "{}"}),
    address_without_text=(kubeflow.read_forward_auth_bag, {"decisions_address": ""}),
    applications_without_address=(kubeflow.read_forward_auth_bag, {"app_names": "[]"}),
    config_without_text=(ingress_route.read_config, ""),
)
def test_what_is_not_written_yet_is_waited_for(read, given):
    assert read(given) == (None, "")


@cases(
    ("read", "given"),
    longest_names=(ingress, asks(prefix="/" + "a" * 255, port=65535, service="a" * 63)),
    longest_address=(kubeflow.read_forward_auth_bag, auth("http://a.b.svc:65535/" + "x" * 491)),
    most_headers=(
        kubeflow.read_forward_auth_bag,
        auth(headers=json.dumps(["a" * 128, *(f"a{n}" for n in range(63))])),
    ),
    most_routes=(
        ingress_route.read_config,
        routes(*[json.loads(routes())["http_routes"][0]] * 128),
    ),
    most_matches=(ingress_route.read_config, routes(matches=[wishes.match("/" + "a" * 255)] * 16)),
    longest_route_name=(ingress_route.read_config, routes(name="x" * 253)),
    most_calls=(ingress_route.read_config, calls(*[STORE] * 128)),
)
def test_most_that_may_be_asked_for_is_read(read, given):
    message, problem = read(given)
    assert (message is None, problem) == (False, "")


@cases(
    ("address", "want"),
    default_port=("http://a.b.svc.cluster.local", ("a.b.svc.cluster.local", 80, "")),
    no_path=("http://a.b.svc:1/", ("a.b.svc", 1, "")),
    upper_case=("http://A.b.svc:1/auth//", ("a.b.svc", 1, "/auth")),
    ipv6=("http://[::1]:80/x", ("::1", 80, "/x")),
)
def test_address_is_read_with_its_path(address, want):
    message, problem = kubeflow.read_forward_auth_bag(auth(address, headers="null"))
    assert (message.decisions_address, problem) == (kubeflow.Address(*want), "")


class App(typing.NamedTuple):
    name: str


def related(**bags):
    """The charm's relations by endpoint, each with its id, an application and its bag."""
    relations = collections.defaultdict(list)
    for endpoint, listed in bags.items():
        for number, name, content in listed:
            app = App(name)
            one = types.SimpleNamespace(id=number, app=app, active=True, data={app: content})
            relations[endpoint.replace("_", "-")].append(one)
    model = types.SimpleNamespace(relations=relations)
    return endpoints.Relations(types.SimpleNamespace(model=model))


REMOTE = "remote-0123456789abcdef0123456789abcdef"


@cases(
    ("application", "given", "problem"),
    of_the_model=("remote-0123", asks(), ""),
    offered=(REMOTE, asks(), "sends no namespace"),
    offered_with_a_namespace=(REMOTE, asks(namespace="sso"), ""),
    offered_and_silent=(REMOTE, {}, ""),
)
def test_request_of_another_model_has_to_name_its_namespace(application, given, problem):
    sent = [(3, application, given)]
    for (one,) in (
        kubeflow.read_ingress(related(ingress=sent)),
        kubeflow.read_ingress_auth(related(ingress_auth=sent)),
    ):
        assert (one.message is None, problem in one.problem) == (bool(problem) or not given, True)
        assert bool(one.problem) is bool(problem)


def test_first_namespace_that_a_charmed_istio_names_is_read():
    sent = [(3, "c", "mesh-2"), (2, "b", "mesh"), (1, "a", "no name")]
    bags = [(number, name, {"root_namespace": text}) for number, name, text in sent]
    assert kubeflow.read_root_namespace(related(istio_metadata=[*bags, (0, "d", {})])) == "mesh"


def test_routes_are_in_the_order_of_their_relations_whatever_their_endpoint():
    asked, free = [(10, "b", {})], [(9, "c", {}), (11, "b", {})]
    found = related(istio_ingress_route=asked, istio_ingress_route_unauthenticated=free)
    requests = ingress_route.read_requests(found)
    assert [each.relation for each in requests] == [9, 10, 11]
    assert kubeflow.format_senders(requests) == "b, c"
    (first, _) = kubeflow.read_ingress(related(ingress=[(10, "a", {}), (9, "b", {})]))
    assert first.relation == 9


def test_key_that_is_there_twice_counts_once():
    config, problem = ingress_route.read_config(routes()[:-1] + ', "model": "other"}')
    assert (config.model, problem) == ("other", "")


STATED = {
    "source_namespace": "kf",
    "source_app_name": "kfp-ui",
    "target_namespace": "kf",
    "target_app_name": "kfp-api",
    "target_type": "app",
    "endpoints": [],
}
UNIT = {"target_type": "unit"}
NAMED = ("source_app_name", "source_namespace", "target_app_name", "target_service")


def by_labels(**labels):
    """The change to a policy for units with labels."""
    return {**UNIT, "target_app_name": None, "target_selector_labels": labels}


def to(**allowed):
    """The change to a policy that allows some requests."""
    return {"endpoints": [allowed]}


LONG_HOST, LONG_PATH = to(hosts=["a" * 254]), to(paths=["/" + "a" * 256])
NO_POLICIES = {
    "is not a name such as kfp-ui": [
        {key: value}
        for key, value in zip(NAMED, ("kfp-ui*", "kube/flow", "KFP", "a.b"), strict=True)
    ]
    + [{"source_app_name": "*"}, {"source_app_name": ""}],
    "should be a valid string": [{"source_app_name": None}],
    "is for namespace kf-user, which is not kf": [{"target_namespace": "kf-user"}],
    "is for an application and names none, or labels": [
        {"target_app_name": None},
        {"target_selector_labels": {"a": "b"}},
    ],
    "should be 'app' or 'unit'": [{"target_type": "pod"}],
    "is for units and speaks of hosts, methods or paths: only of ports": [
        {**UNIT, **to(**{key: [text]})}
        for key, text in (("paths", "/x"), ("methods", "GET"), ("hosts", "a"))
    ],
    "is for units and names a Service, or both a name and labels": [
        {**UNIT, "target_service": "kfp-api"},
        {**by_labels(a="b"), "target_app_name": "kfp-api"},
    ],
    "is not a label": [by_labels(**{"a b": ""})],
    "is not the value of a label": [by_labels(a="b c")],
    "should be greater than or equal to 1": [to(ports=[0])],
    "should be a valid integer": [to(ports=["8888"]), to(ports=[True])],
    "should have at most 32 items": [to(ports=list(range(1, 34)))],
    "is not a path such as /metrics or /apis/*": [
        to(paths=[each]) for each in ("x", "/{a}", "/a*b")
    ],
    "is not a method such as GET": [to(methods=[each]) for each in ("get", "A" * 17)],
    "is not a host such as kfp-api.kubeflow.svc.cluster.local": [
        to(hosts=[each]) for each in ("a b", "a*.b", "a:")
    ],
    "should have at most 25": [LONG_HOST, LONG_PATH],
    "should have at least 1 item": [by_labels()],
    "should have at most 16 items": [
        by_labels(**{f"a{n}": "" for n in range(17)}),
        {"endpoints": [{}] * 17},
    ],
}
"""Changes to a policy that make it none, by the words that refuse it."""


def policies(given):
    """Parse the policies of an application."""
    text = given if isinstance(given, str) else json.dumps(given)
    given = endpoints.Bag(3, "kfp-api", {"policies": text})
    return service_mesh.read_policies(given, model="kf")


@pytest.mark.parametrize("words", NO_POLICIES)
def test_policy_that_is_none_is_refused_by_its_number_and_costs_no_other(words):
    changes = NO_POLICIES[words]
    one = [policies([STATED, {**STATED, **change}]) for change in changes]
    assert [len(each.policies) for each in one] == [1] * len(changes)
    found = [each.problems[0] for each in one]
    assert [each for each in found if not (each.startswith("policy 2") and words in each)] == []


@cases(
    ("text", "words"),
    no_list=("{}", "that is no list of policies"),
    no_json=("[", "that is no JSON"),
    too_deep=("[" * 100 + "]" * 100, "that nests more than 64 lists"),
    too_many=(json.dumps([STATED] * 513), "that has more than 512 policies"),
    too_long=(json.dumps(["x" * 262141]), "that has 262145 characters, more than 262144"),
)
def test_document_that_is_none_states_nothing_and_says_so(text, words):
    one = policies(text)
    assert one.policies == ()
    (problem,) = one.problems
    assert problem.startswith(f"sends a document {words}")


def test_most_that_an_application_may_say_is_read_and_many_problems_are_few_lines():
    many = [{**STATED, "source_app_name": f"client-{number}"} for number in range(512)]
    assert len(policies(many).policies) == 512
    for count, last in ((4, "policy 4: "), (5, "and 1 more"), (100, "and 96 more")):
        problems = policies(([5, None] * 50)[:count]).problems
        assert (len(problems), problems[-1][: len(last)]) == (min(count, 5), last)
    labels = {f"{'a' * 253}/C_d.{'e' * 59}": "", **{f"a{n}": "B-1" * 21 for n in range(15)}}
    of_units = {**STATED, **UNIT, "target_app_name": None, "target_selector_labels": labels}
    hosts = ["*", "*.a.B", "a-1.b:65535", "a.b.*", "a" * 253]
    allowed = {"hosts": hosts, "ports": list(range(1, 33)), "methods": ["A" * 16]}
    allowed["paths"] = ["*", "*/x", "/a*", "/" + "a" * 255]
    of_service = {"target_app_name": None, "target_service": "kfp-api"}
    by_service = {**STATED, **of_service, "endpoints": [allowed] * 16}
    assert len(policies([of_units, by_service]).policies) == 2
    for application in ("kfp-api", REMOTE):
        silent = service_mesh.read_policies(endpoints.Bag(3, application, {}), model="kf")
        assert (silent.policies, silent.problems) == ((), ())


# Structures that are nearly right, and those that are not at all.
KEYS = st.sampled_from(
    ["service", "port", "prefix", "rewrite", "namespace", "allowed-request-headers", "url",
     "model", "http_routes", "grpc_routes", "name", "backends", "matches", "filters", "<<", "x",
     *STATED]
)  # fmt: skip
ODD = ["a", "/a", "http://a/", "v1", "v2", LONG, "x" * 3000, "\ud800", "\x1b[2J"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(ODD),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)
TEXTS = st.one_of(
    VALUES.map(json.dumps),
    VALUES.map(repr),
    st.text(alphabet="[]{}:,&*!<>-?|'\"\\ \n\t#%@`ax0159.~\x07", max_size=60),
    st.tuples(st.sampled_from("[{-&*!?'\""), st.integers(1, 3000)).map(
        lambda pair: pair[0] * pair[1]
    ),
    st.sampled_from([text for text, _ in HOSTILE.values()]),
)
"""Texts of data bags."""


@settings(max_examples=50)
@given(TEXTS, st.sampled_from(["[v1]", "[v1, v2]"]) | TEXTS)
@example(MERGED, "[v1]")
@example(DEEP, DEEP)
def test_any_bag_is_read_or_refused(text, versions):
    read = [
        *(
            kubeflow.read_request(bag(text, versions), models)
            for models in (kubeflow.INGRESS_MODELS, kubeflow.AUTH_MODELS)
        ),
        *(
            kubeflow.read_forward_auth_bag({**auth(), key: text})
            for key in ("decisions_address", "headers")
        ),
        ingress_route.read_config(text),
    ]
    for message, problem in read:
        assert not (message and problem)
        assert problem.isprintable()
        assert len(problem) < 500
    assert all(each.isprintable() and len(each) < 500 for each in policies(text).problems)


@given(st.sampled_from(["model", "http_routes", "grpc_routes", "name", "matches"]), VALUES)
def test_routes_that_are_read_can_be_served_or_are_refused_by_name(place, value):
    said = json.loads(routes())
    (said if place in said else said["http_routes"][0])[place] = value
    config, problem = ingress_route.read_config(json.dumps(said))
    assert (config is None) == bool(problem)
    if config:
        one = {"endpoint": wishes.ASKED, "relation": 1, "application": "app"}
        wishes.plan(ingress_route.Received(**one, message=config))
