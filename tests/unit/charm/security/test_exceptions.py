"""Which ports stay open to plain text, and who is cut off: properties and cases."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.config.plain_ports import Named
from istio_integrator.istio.peer_authentication import PeerAuthentication
from istio_integrator.mtls.exceptions import Scene
from istio_integrator.mtls.members import Member, PlainClients
from istio_integrator.situation.model import Call
from tests.unit.charm.security import callers


def marks(**labels):
    return frozenset(labels.items())


def member(workload="minio", *ports, **fields):
    chosen = marks(app=workload)
    given = {"selector": chosen, "labels": chosen, "ports": frozenset(ports), **fields}
    return Member(workload, **given)


def service(name="minio", *ports, kind="ClusterIP", **labels):
    return callers.service(name, *ports, selector=labels or {"app": name}, kind=kind)


HTTP = (80, 9000, "http")
NAMED = (443, "webhook", "https")
HOOK = Call("ValidatingWebhookConfiguration katib", "katib", 443)


def open_ports(scene):
    return {each.workload: sorted(each.ports) for each in scene.opened}


def lost(scene):
    return [each.seen for each in scene.victims]


@pytest.mark.parametrize(
    ("scene", "want"),
    [
        pytest.param(Scene([member()], [service("minio", HTTP)]), {}, id="nobody"),
        pytest.param(
            Scene([member("katib", ("webhook", 8443))], [service("katib", NAMED)], [HOOK]),
            {"katib": [8443]},
            id="webhook at a named port",
        ),
        pytest.param(
            Scene(
                [member("katib", ("webhook", 8443)), member("katib", ("webhook", 9443))],
                [service("katib", NAMED)],
                [HOOK],
            ),
            {"katib": [8443, 9443]},
            id="old and new pods have the name at other ports",
        ),
        pytest.param(
            Scene([member("katib")], [service("katib", HTTP)], [HOOK]), {}, id="no such port"
        ),
        pytest.param(
            Scene([member("katib")], [service("other", NAMED)], [HOOK]), {}, id="no such Service"
        ),
        pytest.param(
            Scene([member(probed=frozenset({8080}), scraped=frozenset({9100}))]),
            {"minio": [8080, 9100]},
            id="kubelet and scraper",
        ),
        pytest.param(
            Scene([member(probed=frozenset({8080}), untouched=frozenset({8080}))]),
            {},
            id="what does not reach the proxy needs nothing",
        ),
        pytest.param(
            Scene([member(probed=frozenset({8080, 9}), touched=frozenset({9}))]),
            {"minio": [9]},
            id="only what reaches the proxy",
        ),
        pytest.param(
            Scene([member(scraped=frozenset({15020, 15090}))]), {}, id="the agent's own ports"
        ),
        pytest.param(
            Scene([member()], [service("minio", HTTP)], named=[Named("minio", "80")]),
            {"minio": [9000]},
            id="option: a Service's port",
        ),
        pytest.param(
            Scene([member()], [service("minio", HTTP)], named=[Named("minio", "http")]),
            {"minio": [9000]},
            id="option: its name",
        ),
        pytest.param(
            Scene([member()], [service("minio", HTTP)], named=[Named("minio", "9001")]),
            {"minio": [9001]},
            id="option: a pod's port",
        ),
        pytest.param(
            Scene([member("minio", ("a", 1))], [service("minio", HTTP)], named=[Named("minio")]),
            {"minio": [1, 9000]},
            id="option: all that is known",
        ),
        pytest.param(
            Scene(
                [member("db-v2")],
                [service("db", HTTP, app="db-v2")],
                named=[Named("db", "5432")],
            ),
            {"db-v2": [5432]},
            id="option: a Service's pods at a port that it has not",
        ),
    ],
)
def test_ports_that_somebody_needs_in_plain_text_stay_open(scene, want):
    assert open_ports(scene) == want


def test_entry_of_the_option_that_means_nothing_is_told():
    scene = Scene(
        [member()],
        [service("minio", HTTP)],
        named=[Named("minio"), Named("minoi"), Named("minio", "grpc")],
    )
    assert scene.unmatched == [Named("minoi"), Named("minio", "grpc")]


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer", "externalIPs"])
def test_way_past_the_gateway_is_lost_until_it_is_named(kind):
    scene = Scene([member()], [service("minio", HTTP, kind=kind)])
    (seen,) = lost(scene)
    assert seen.startswith(f"Service minio ({kind}) leads to minio:80 past the gateway")
    assert lost(dataclasses.replace(scene, named=[Named("minio", "80")])) == []
    assert lost(Scene([], scene.services)) == [], "its pods are not in the mesh"


def test_clients_that_are_told_to_call_without_certificates_are_lost():
    rule = PlainClients("DestinationRule kubeflow/x", "minio")
    scene = Scene([member()], [service("minio", HTTP)], plain_clients=[rule])
    assert lost(scene) == [
        "DestinationRule kubeflow/x has clients call minio:80 without the mesh's certificates"
    ]
    everywhere = dataclasses.replace(rule, service="*")
    assert lost(dataclasses.replace(scene, plain_clients=[everywhere])) == lost(scene)
    another = dataclasses.replace(rule, port=81)
    assert lost(dataclasses.replace(scene, plain_clients=[another])) == []


def test_pods_that_no_label_chooses_are_a_loss_and_no_policy_for_everybody():
    bare = member("bare", selector=frozenset(), labels=frozenset(), probed=frozenset({80}))
    scene = Scene([bare])
    assert open_ports(scene) == {}
    assert "whose pods have no labels" in lost(scene)[0]


def test_exception_stays_while_a_workload_is_between_two_pods():
    ports = dict.fromkeys((8080, 9000), "PERMISSIVE")
    standing = [PeerAuthentication("kubeflow", "x", selector={"app": "minio"}, ports=ports)]
    to_come = member(foreseen=frozenset({8080, 1}))
    assert open_ports(Scene([to_come], standing=standing)) == {"minio": [8080]}
    assert open_ports(Scene([member()], standing=standing)) == {}


LABELS = st.sampled_from([marks(a="1"), marks(a="1", b="1"), marks(b="1"), marks(c="1")])
PORTS = st.frozensets(st.integers(1, 6), max_size=3)
MEMBERS = st.lists(
    st.builds(
        lambda name, selector, more, probed, scraped, untouched: Member(
            name,
            selector,
            selector | more,
            probed=probed,
            scraped=scraped,
            untouched=untouched,
        ),
        st.sampled_from("xyz"),
        LABELS,
        LABELS,
        PORTS,
        PORTS,
        PORTS,
    ),
    max_size=6,
)
SERVICES = st.lists(
    st.builds(
        callers.service,
        st.sampled_from(["s", "t"]),
        st.tuples(st.integers(1, 3), st.integers(1, 6)),
        selector=LABELS.map(dict),
        kind=st.sampled_from(["ClusterIP", "NodePort"]),
    ),
    unique_by=lambda each: each.name,
    max_size=2,
)
CALLS = st.lists(st.builds(Call, st.just("hook"), st.sampled_from("st"), st.integers(1, 3)))
OPTION = st.lists(st.builds(Named, st.sampled_from("stx"), st.sampled_from(["", "1", "2"])))
SCENES = st.builds(Scene, MEMBERS, SERVICES, CALLS, named=OPTION)


@given(SCENES)
def test_every_policy_that_chooses_a_pod_has_all_its_ports(scene):
    needs, opened = scene.needs, scene.opened
    for each in scene.members:
        wanted = {need.port for need in needs if need.selector == each.selector}
        for policy in opened:
            if policy.selector <= each.labels:
                assert wanted <= policy.ports


@given(SCENES)
def test_policies_choose_by_labels_and_open_only_what_some_chosen_pod_needs(scene):
    needs, opened = scene.needs, scene.opened
    assert all(each.selector and each.ports for each in opened)
    assert len({each.selector for each in opened}) == len(opened)
    assert {port for each in opened for port in each.ports} == {each.port for each in needs}
    assert {each.selector for each in opened} == {each.selector for each in needs}


@given(SCENES)
def test_nothing_is_lost_and_open_at_once(scene):
    everything = [Named(each.name) for each in scene.services]
    mended = dataclasses.replace(scene, named=[*scene.named, *everything])
    assert mended.victims == []
    ports = {(each.selector, each.port) for each in scene.needs}
    for each in scene.members:
        for call in scene.calls:
            for one in scene.services:
                is_called = one.name == call.service and each.labels.issuperset(one.selector)
                (port,) = one.ports
                if is_called and port.port == call.port and each.intercepts(port.target_port):
                    assert (each.selector, port.target_port) in ports
