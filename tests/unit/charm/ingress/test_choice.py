"""The choice of the gateway, whatever others make around it."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from istio_integrator.ingress import choice, gateway, observed
from istio_integrator.mesh import plaintext

HOSTS = ("kf.example",)
MARKS = {"istio": "ingressgateway"}
PLACE = gateway.Place(
    namespace="platform", service="gw", selector=MARKS, hosts=HOSTS, http_port=80, https_port=443
)
OWN = choice.Own(service="kubeflow/own", selector={"istio": "own", "owner": "us"})
OWN_PLACE = PLACE.model_copy(
    update={"namespace": "kubeflow", "service": "own", "selector": dict(OWN.selector)}
)
WORKLOAD = observed.Workload("platform", "gw", {**MARKS, "app": "gw"}, True, True)
OWN_WORKLOAD = observed.Workload("kubeflow", "own", dict(OWN.selector), True, True)
SERVICES = (
    observed.Service("platform", "gw", MARKS, 80, 443),
    observed.Service("kubeflow", "own", OWN.selector, 80, 443),
)


def a_gateway(namespace, name, marks, *hosts, port=80):
    servers = [{"port": {"number": port, "name": "http"}, "hosts": list(hosts)}]
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"selector": dict(marks), "servers": servers},
    }


SHARED = a_gateway("platform", "shared", MARKS, "shop.example")


def wishes(**changes):
    values = {"model": "kubeflow", "hosts": HOSTS, "own": OWN, **changes}
    return choice.GatewayOptions(**values)


def found(**changes):
    values = {
        "workloads": (WORKLOAD, OWN_WORKLOAD),
        "services": SERVICES,
        "gateways": (SHARED,),
        "tenants": {"team-a", "team-b"},
        "running": {"platform/gw", "kubeflow/own"},
        **changes,
    }
    return choice.Inventory(**values)


WORDS = {
    "nothing": ({}, PLACE),
    "the service": ({"service": "platform/gw"}, PLACE),
    "the labels": ({"selector": "istio=ingressgateway"}, PLACE),
    "another gateway": ({"gateway": "platform/shared"}, PLACE),
    "a workload of our own": ({"wants_own": True}, OWN_PLACE),
    "a service that is not there": ({"service": "platform/new"}, PLACE),
    "labels that are not there": ({"selector": "istio=new"}, PLACE),
}
words = pytest.mark.parametrize(("options", "place"), WORDS.values(), ids=WORDS)


def moved(target):
    """What of a target is the same as long as nothing moves."""
    others = {"neighbours": (), "problems": (), "notes": (), "ready": False, "workload": ""}
    return dataclasses.replace(target, **others)


KEYS = st.sampled_from(["istio", "app", "owner"])
VALUES = st.sampled_from(["ingressgateway", "gw", "own", "us", "else"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=3)
TENANTS = st.sampled_from(["team-a", "team-b"])
NAMES = st.sampled_from(["gw", "own", "shared", "x"])
PORTS = st.sampled_from([None, 80, 443])
FAKES = st.lists(
    st.builds(observed.Workload, TENANTS, NAMES, LABELS, st.booleans(), st.booleans()), max_size=4
)
FRONTS = st.lists(st.builds(observed.Service, TENANTS, NAMES, LABELS, PORTS, PORTS), max_size=3)
CLAIMS = st.lists(
    st.builds(a_gateway, TENANTS, NAMES, LABELS, st.sampled_from(["*", "kf.example", "a.b"])),
    max_size=3,
)


@words
@given(fakes=FAKES, fronts=FRONTS, claims=CLAIMS)
@settings(deadline=None, max_examples=60)
def test_no_object_of_a_tenant_changes_what_serves_the_model(
    options, place, fakes, fronts, claims
):
    alone = choice.resolve(wishes(**options), found(current=place))
    attacked = choice.resolve(
        wishes(**options),
        found(
            current=place,
            workloads=(*fakes, WORKLOAD, OWN_WORKLOAD, *fakes),
            services=(*fronts, *SERVICES),
            gateways=(*claims, SHARED),
            running={"platform/gw", "kubeflow/own", *(one.reference for one in fakes)},
        ),
    )
    assert isinstance(attacked, gateway.Target)
    assert moved(attacked) == moved(alone)
    assert (attacked.ready, attacked.workload) == (alone.ready, alone.workload)
    assert alone.problems == () or alone.problems[0] in attacked.problems


@words
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_what_is_absent_is_waited_for_where_it_was(options, place, data):
    def some(items):
        return data.draw(st.lists(st.sampled_from(items), unique_by=id))

    target = choice.resolve(
        wishes(**options),
        found(
            current=place,
            workloads=some([WORKLOAD, OWN_WORKLOAD]),
            services=some(SERVICES),
            gateways=some([SHARED]),
        ),
    )
    assert isinstance(target, gateway.Target)
    assert target.place == place
    if target.ready:
        assert target.workload == place.service
    else:
        assert [type(problem) for problem in target.problems] == [gateway.Missing]


SPACES = st.sampled_from(["team-a", "platform", "kubeflow"])
ANYTHING = st.builds(
    found,
    workloads=st.lists(
        st.builds(observed.Workload, SPACES, NAMES, LABELS, st.booleans(), st.booleans()),
        max_size=4,
    ),
    services=st.lists(
        st.builds(observed.Service, SPACES, NAMES, LABELS, PORTS, PORTS), max_size=4
    ),
    gateways=CLAIMS,
    scoped=st.booleans(),
    running=st.sets(st.sampled_from(["platform/gw", "kubeflow/x", "team-a/gw", "platform/x"])),
)


@st.composite
def inventories(draw):
    """Whatever may be in a cluster, often with a gateway that could serve: it has a Service."""
    anything = draw(ANYTHING)
    if draw(st.booleans()):
        return anything
    space = draw(SPACES)
    return dataclasses.replace(
        anything,
        workloads=(*anything.workloads, dataclasses.replace(WORKLOAD, namespace=space)),
        services=(*anything.services, dataclasses.replace(SERVICES[0], namespace=space)),
        running={*anything.running, f"{space}/gw"},
    )


FIRST = {
    "cluster": inventories(),
    "hosts": st.sampled_from([(), HOSTS]),
    "selector": st.sampled_from(["", "istio=ingressgateway"]),
}


def test_choices_of_a_gateway_are_among_those_that_are_tried():
    reached = 0

    @settings(deadline=None, max_examples=200, derandomize=True, database=None)
    @given(**FIRST)
    def look(cluster, hosts, selector):
        nonlocal reached
        target = choice.resolve(wishes(hosts=hosts, selector=selector), cluster)
        reached += isinstance(target, gateway.Target)

    look()
    assert reached >= 10


@given(**FIRST)
@settings(deadline=None, max_examples=200)
def test_first_choice_is_alone_ready_within_reach_and_no_tenants(cluster, hosts, selector):
    target = choice.resolve(wishes(hosts=hosts, selector=selector), cluster)
    if isinstance(target, gateway.Target):
        assert hosts or not target.neighbours
        assert not cluster.scoped or target.namespace == "kubeflow"
        assert target.namespace != "team-a"
        assert target.selector
        assert target.ports
        assert target.problems == ()
        chosen = [
            one
            for one in cluster.workloads
            if one.namespace == target.namespace and observed.matches(target.selector, one.labels)
        ]
        assert any(one.ready and one.reference in cluster.running for one in chosen)
    else:
        assert target.message


@pytest.mark.parametrize(
    ("options", "changes", "words"),
    [
        ({}, {"workloads": ()}, "install one, name it in gateway-service"),
        ({}, {"running": ()}, "platform/gw has no ready router"),
        (
            {},
            {"workloads": (dataclasses.replace(WORKLOAD, namespace="team-a"),)},
            "team-a/gw is in a namespace of tenants; name its Service in gateway-service",
        ),
        ({"selector": "istio=ingressgateway"}, {"running": ()}, "has no ready router"),
    ],
)
def test_first_choice_says_what_it_waits_for(options, changes, words):
    missing = choice.resolve(wishes(**options), found(**changes))
    assert isinstance(missing, gateway.Missing)
    assert words in missing.message


def test_gateway_of_a_tenant_serves_where_the_operator_names_it():
    theirs = dataclasses.replace(WORKLOAD, namespace="team-a")
    front = dataclasses.replace(SERVICES[0], namespace="team-a")
    target = choice.resolve(
        wishes(service="team-a/gw"),
        found(workloads=(WORKLOAD, theirs), services=(*SERVICES, front), current=PLACE),
    )
    assert isinstance(target, gateway.Target)
    assert target.namespace == "team-a"
    assert target.problems == ()


OTHER = observed.Workload("platform", "other", {"istio": "other"}, True, True)


@pytest.mark.parametrize(
    "options",
    [{"selector": "istio=other"}, {"gateway": "platform/others"}],
    ids=["selector", "copied selector"],
)
def test_selector_chooses_within_the_namespace_that_is_remembered(options):
    elsewhere = dataclasses.replace(OTHER, namespace="free", name="gw")
    target = choice.resolve(
        wishes(**options),
        found(
            workloads=(WORKLOAD, OTHER, elsewhere),
            services=(*SERVICES, observed.Service("platform", "other", OTHER.labels, 80)),
            gateways=(a_gateway("platform", "others", OTHER.labels, "x.example"),),
            current=PLACE,
        ),
    )
    assert isinstance(target, gateway.Target)
    assert (target.namespace, target.service) == ("platform", "other")
    assert target.selector == OTHER.labels
    assert "free/gw" in target.notes[0]


CHANGES = {
    "another host": (("shop.example",), False, HOSTS, "serves host shop.example too"),
    "one more host": ((*HOSTS, "shop.example"), False, HOSTS, "serves host shop.example too"),
    "all hosts": ((), False, HOSTS, "is on the same workload"),
    "a wildcard": (("*.kf.example",), False, ("*.kf.example",), ""),
    "a wildcard around theirs": (("*.example",), False, HOSTS, "'shop.example', which is within"),
    "a wildcard around theirs with TLS": (("*.example",), True, ("*.example",), ""),
    "free hosts": (("a.example",), False, ("a.example",), ""),
}


@pytest.mark.parametrize(("hosts", "tls", "want", "words"), CHANGES.values(), ids=CHANGES)
def test_hosts_that_others_were_given_first_are_refused_and_the_model_served_on(
    hosts, tls, want, words
):
    target = choice.resolve(wishes(hosts=hosts, only_https=tls), found(current=PLACE))
    assert isinstance(target, gateway.Target)
    assert target.hosts == want
    problems = [problem.message for problem in target.problems]
    assert [words in problem for problem in problems] == ([True] if words else [])


def test_newcomer_with_our_host_is_named_and_new_hosts_are_served():
    taken = a_gateway("team-a", "claim", MARKS, *HOSTS)
    target = choice.resolve(
        wishes(hosts=(*HOSTS, "b.example")), found(current=PLACE, gateways=(taken,))
    )
    assert isinstance(target, gateway.Target)
    assert target.hosts == (*HOSTS, "b.example")
    assert "team-a/claim" in target.problems[0].message


def test_gateways_of_others_on_our_own_workload_forbid_nothing():
    taken = a_gateway("team-a", "claim", OWN.selector, "*", *HOSTS)
    for hosts in ((), HOSTS, ("*.example",)):
        target = choice.resolve(wishes(wants_own=True, hosts=hosts), found(gateways=(taken,)))
        assert isinstance(target, gateway.Target)
        assert (target.is_own, target.hosts, target.problems) == (True, hosts, ())
        assert "team-a/claim" in target.notes[0]


def test_workload_of_our_own_serves_until_another_is_chosen():
    waiting = choice.resolve(wishes(), found(current=OWN_PLACE, running=()))
    assert isinstance(waiting, gateway.Target)
    assert (waiting.is_own, waiting.ready) == (True, True)
    assert [type(problem) for problem in waiting.problems] == [gateway.Missing]
    chosen = choice.resolve(wishes(), found(current=OWN_PLACE))
    assert isinstance(chosen, gateway.Target)
    assert chosen.namespace == "platform"


def test_istiod_that_becomes_scoped_is_named_and_the_model_served_on():
    target = choice.resolve(wishes(), found(current=PLACE, scoped=True))
    assert isinstance(target, gateway.Target)
    assert observed.SCOPE_SETTING in target.problems[0].message


FIELDS = """metadata namespace name labels annotations spec template containers args env selector
servers hosts port number ports status value inject.istio.io/templates tls"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(FIELDS.split()),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(JSON)
@settings(deadline=None, max_examples=300)
def test_whatever_an_object_holds_it_is_read(value):
    obj = {"metadata": {"namespace": "team-a", "name": "x"}, "spec": value, "status": value}
    for each in (obj, value if isinstance(value, dict) else {}):
        observed.Workload.of(each)
        observed.Service.of(each)
        observed.Neighbour.of(each)
        plaintext.is_router(each)
        observed.is_scoped(each)
        gateway.served(each)
        choice.resolve(wishes(), found(gateways=(each,), current=PLACE))


def test_gateway_of_too_many_hosts_counts_with_the_first_and_those_that_are_ours():
    hosts = [f"{number}.example" for number in range(4000)]
    spec = {"servers": [{"port": {"number": 80}, "hosts": [*hosts, "Kf.Example"]}] * 100}
    obj = {"metadata": {"namespace": "team-a", "name": "x"}, "spec": spec}
    neighbour = observed.Neighbour.of(obj, HOSTS)
    assert len(neighbour.servers) == observed.MOST_SERVERS
    assert {len(server.hosts) for server in neighbour.servers} == {observed.MOST_HOSTS}
    assert "kf.example" in neighbour.hosts_at(80)


def test_of_too_many_gateways_those_with_our_host_count():
    many = [a_gateway("a-team", f"n{number}", MARKS, "x.example") for number in range(1000)]
    ours = a_gateway("team-a", "claim", MARKS, *HOSTS)
    target = choice.resolve(wishes(), found(gateways=(*many, ours), current=PLACE))
    assert isinstance(target, gateway.Target)
    assert len(target.neighbours) == observed.MOST_NEIGHBOURS
    assert "team-a/claim" in target.problems[0].message
