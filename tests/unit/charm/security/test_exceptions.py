"""Which ports stay open to plain text, whatever the model has."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.config.config import PlainTextPort
from istio_integrator.mtls.exceptions import Exceptions
from istio_integrator.mtls.members import Member
from istio_integrator.situation.model import Call
from tests.unit.charm.security import callers


def marks(**labels):
    return frozenset(labels.items())


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
OPTION = st.lists(
    st.builds(PlainTextPort, st.sampled_from("stx"), st.sampled_from(["", "1", "2"]))
)
SCENES = st.builds(Exceptions, MEMBERS, SERVICES, CALLS, named=OPTION)


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
    everything = [PlainTextPort(each.name) for each in scene.services]
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
