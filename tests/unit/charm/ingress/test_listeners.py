"""Which listeners of somebody else's Gateway serve a model, and what is said about the others."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.ingress import listeners

HOST = "kubeflow.example.com"
LABELS = {"kubernetes.io/metadata.name": "kubeflow", "team": "ml"}
GUEST = listeners.Guest(namespace="kubeflow", labels=LABELS, hosts=(HOST, "ml.example.com"))
ALL = {"namespaces": {"from": "All"}}


def listener(name="http", protocol="HTTP", port=80, **more):
    return {"name": name, "protocol": protocol, "port": port, "allowedRoutes": ALL, **more}


def gateway(*found, namespace="edge"):
    return {
        "metadata": {"name": "shared", "namespace": namespace},
        "spec": {"listeners": list(found)},
    }


def by_selector(selector):
    return {"namespaces": {"from": "Selector", "selector": selector}}


def offered(**changes):
    return listeners.offer(gateway(listener(**changes)), GUEST)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hostname": ""},
        {"hostname": HOST},
        {"hostname": "*.example.com"},
        {"hostname": "*.com"},
        {"protocol": "HTTPS", "port": 443},
        {"protocol": "HTTPS", "port": 443, "tls": {"mode": "Terminate"}},
        {"allowedRoutes": by_selector({})},
        {"allowedRoutes": by_selector({"matchLabels": {"team": "ml"}})},
        {
            "allowedRoutes": by_selector(
                {"matchExpressions": [{"key": "team", "operator": "In", "values": ["ml", "web"]}]}
            )
        },
        {
            "allowedRoutes": by_selector(
                {"matchExpressions": [{"key": "secret", "operator": "DoesNotExist"}]}
            )
        },
        {"allowedRoutes": {**ALL, "kinds": [{"kind": "HTTPRoute"}]}},
    ],
)
def test_listener_that_lets_the_model_in_is_a_way(changes):
    found = offered(**changes)
    assert [way.listener for way in found.ways] == ["http"]
    assert HOST in found.ways[0].hosts
    assert found.refusals == ()


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"protocol": "TCP"}, "is none for HTTP or HTTPS but for TCP"),
        ({"protocol": "TLS", "tls": {"mode": "Terminate"}}, "but for TLS"),
        ({"protocol": "HTTPS", "tls": {"mode": "Passthrough"}}, "set Terminate"),
        ({"port": True}, "is none for HTTP"),
        ({"allowedRoutes": None}, "no routes of namespace kubeflow"),
        ({"allowedRoutes": {"namespaces": {"from": "Same"}}}, "no routes of namespace kubeflow"),
        ({"allowedRoutes": {"namespaces": {"from": "None"}}}, "no routes of namespace kubeflow"),
        ({"allowedRoutes": {"namespaces": {"from": "Selector"}}}, "set from to All"),
        ({"allowedRoutes": by_selector({"matchLabels": {"team": "web"}})}, "matches its labels"),
        (
            {"allowedRoutes": by_selector({"matchExpressions": [{"key": "a", "operator": "In"}]})},
            "matches its labels",
        ),
        (
            {
                "allowedRoutes": by_selector(
                    {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["ml"]}]}
                )
            },
            "matches its labels",
        ),
        ({"allowedRoutes": by_selector({"matchLabels": ["team"]})}, "matches its labels"),
        ({"allowedRoutes": by_selector({"other": {}})}, "matches its labels"),
        ({"allowedRoutes": {**ALL, "kinds": [{"kind": "GRPCRoute"}]}}, "add HTTPRoute"),
        (
            {"allowedRoutes": {**ALL, "kinds": [{"group": "x", "kind": "HTTPRoute"}]}},
            "add HTTPRoute",
        ),
        ({"hostname": "shop.example.com"}, f"hosts has {HOST}, ml.example.com"),
        ({"hostname": "*.kubeflow.example.com"}, "name one of hosts"),
    ],
)
def test_listener_that_does_not_is_named_with_what_would_be_right(changes, want):
    found = offered(**changes)
    assert found.ways == ()
    assert found.refused.startswith("listener http ")
    assert want in found.refused


@pytest.mark.parametrize(
    ("hostname", "host", "want"),
    [
        ("", "example.com", True),
        ("example.com", "example.com", True),
        ("example.com", "a.example.com", False),
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "someexample.com", False),
    ],
)
def test_wildcard_stands_for_labels_and_for_no_part_of_one(hostname, host, want):
    assert listeners.serves(hostname, host) is want


def test_without_a_word_routes_of_the_gateways_own_namespace_are_let_in():
    here = gateway(listener(allowedRoutes=None), namespace="kubeflow")
    assert listeners.offer(here, GUEST).ways


def test_ports_are_told_for_each_host_and_protocol():
    found = listeners.offer(
        gateway(
            listener(),
            listener("https", "HTTPS", 8443, hostname=HOST),
            listener("more", "HTTPS", 443, hostname=HOST),
        ),
        GUEST,
    )
    assert found.port(HOST, is_https=True) == 443
    assert found.port("ml.example.com", is_https=True) is None
    assert found.port("ml.example.com", is_https=False) == 80
    assert found.missing(["shop.example.com", HOST]) == ["shop.example.com"]


def test_grpc_routes_are_served_only_if_they_may_be_on_every_way():
    http_only = {**ALL, "kinds": [{"kind": "HTTPRoute"}]}
    both = {**ALL, "kinds": [{"kind": "HTTPRoute"}, {"kind": "GRPCRoute"}]}
    here = gateway(listener(allowedRoutes=both), listener("b", port=81, allowedRoutes=http_only))
    assert not listeners.offer(here, GUEST).takes_calls
    assert offered(allowedRoutes=both).takes_calls


def test_of_many_refusals_the_first_are_said():
    many = [listener(f"l-{number}", hostname="a.example.com") for number in range(5)]
    said = listeners.offer(gateway(*many), GUEST).refused
    assert "l-2" in said
    assert "l-3" not in said
    assert said.endswith("and 2 more listeners")
    assert "and 1 more" in listeners.offer(gateway(*many[:4]), GUEST).refused
    assert "more" not in listeners.offer(gateway(*many[:3]), GUEST).refused
    assert listeners.offer(gateway(), GUEST).refused == "it has no listener"


PROFILES = {"alice": {"app.kubernetes.io/part-of": "kubeflow-profile"}, "kubeflow": LABELS}


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({}, ("http", "alice")),
        ({"hostname": "*.example.com"}, ("http", "alice")),
        ({"hostname": "shop.example.com"}, ("http", "alice")),
        ({"allowedRoutes": by_selector({"matchLabels": {"team": "ml"}})}, ("http", "kubeflow")),
        ({"hostname": HOST}, None),
        ({"allowedRoutes": {"namespaces": {"from": "Same"}}}, None),
        ({"allowedRoutes": by_selector({"matchLabels": {"team": "web"}})}, None),
        ({"protocol": "TCP"}, None),
    ],
)
def test_names_at_which_nobody_would_be_asked_are_found(changes, want):
    here = gateway(listener(**changes))
    assert listeners.open_beside(here, GUEST.hosts, PROFILES) == want


names = st.sampled_from([HOST, "ml.example.com", "example.com", "a.ml.example.com", "shop.org"])
hostnames = st.one_of(st.just(""), names, names.map(lambda name: f"*.{name}"), st.just("*.com"))
expressions = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["team", "tier"]),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    },
    optional={"values": st.lists(st.sampled_from(["ml", "web"]), max_size=2)},
)
label_selectors = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(st.just("team"), st.sampled_from(["ml", "web"])),
        "matchExpressions": st.lists(expressions, max_size=2),
    },
)
allowed = st.fixed_dictionaries(
    {},
    optional={
        "from": st.sampled_from(["All", "Same", "Selector", "None", "Other"]),
        "selector": label_selectors,
    },
)
ways_in = st.fixed_dictionaries(
    {
        "name": st.sampled_from("abc"),
        "protocol": st.sampled_from(["HTTP", "HTTPS", "TLS", "TCP"]),
        "port": st.integers(0, 70000),
        "hostname": hostnames,
        "allowedRoutes": st.fixed_dictionaries({"namespaces": allowed}),
    }
)


def is_selected(selector):
    """What Kubernetes says of LABELS, in one line for each operator."""
    said = {
        "In": lambda value, values: value in values,
        "NotIn": lambda value, values: value not in values,
        "Exists": lambda value, values: value is not None and not values,
        "DoesNotExist": lambda value, values: value is None and not values,
    }
    pairs = selector.get("matchLabels", {}).items()
    return all(LABELS.get(key) == value for key, value in pairs) and all(
        said[each["operator"]](LABELS.get(each["key"]), each.get("values", []))
        and (each["operator"] in ("Exists", "DoesNotExist") or bool(each.get("values")))
        for each in selector.get("matchExpressions", [])
    )


@given(st.lists(ways_in, max_size=4), st.sampled_from(["edge", "kubeflow"]))
def test_each_listener_is_a_way_exactly_where_it_lets_the_model_in(found, home):
    answer = listeners.offer(gateway(*found, namespace=home), GUEST)
    assert len(answer.ways) + len(answer.refusals) == len(found)
    expected = []
    for each in found:
        allows = each["allowedRoutes"]["namespaces"]
        lets_in = {
            "All": True,
            "Same": home == "kubeflow",
            "Selector": "selector" in allows and is_selected(allows["selector"]),
        }.get(allows.get("from", "Same"), False)
        pattern = re.escape(each["hostname"]).replace(r"\*", ".+") or ".*"
        hosts = tuple(host for host in GUEST.hosts if re.fullmatch(pattern, host))
        is_web = each["protocol"] in ("HTTP", "HTTPS") and 0 < each["port"] < 65536
        if lets_in and hosts and is_web:
            expected.append((each["name"], hosts))
    assert [(way.listener, way.hosts) for way in answer.ways] == expected


garbage = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=5,
)
FIELDS = ("name", "protocol", "port", "hostname", "tls", "allowedRoutes")


@given(st.sampled_from(FIELDS), garbage, st.sampled_from(["namespaces", "kinds", "selector", ""]))
def test_whatever_a_listener_says_nobody_is_let_in_by_mistake(field, said, inner):
    value = {inner: said} if inner else said
    if inner == "selector":
        value = {"namespaces": {"from": "Selector", "selector": said}}
    here = gateway({**listener(), "allowedRoutes": None, field: value}, namespace="edge")
    found = listeners.offer(here, GUEST)
    listeners.open_beside(here, GUEST.hosts, PROFILES)
    assert found.ways == () or said == {}
    assert found.refused.isprintable()
