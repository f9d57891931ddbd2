"""Settings of a mesh whose istiod is elsewhere."""

import dataclasses
import types

import pytest

from integrator_contract import pods
from istio_integrator.diagnosis.checks import istiod
from tests.unit.charm.diagnosis.objects import ALIVE

OUTSIDE = dataclasses.replace(
    ALIVE,
    namespace="",
    service="",
    url="https://istiod.example:15017/inject",
    webhook_configuration="istiod-managed",
    has_settings=False,
)
INSTALLED = dataclasses.replace(OUTSIDE, remote_namespace="istio-system")
EVERY = pods.Ports(pods="", ports=(17070, 443))
CHARMS = pods.Ports(pods="app.kubernetes.io/name", ports=(17070,))
SOME = pods.Ports(pods="app=trainer", ports=(17070,))
OTHER = pods.Ports(pods="", ports=(5432,))


def judged(found, *rules):
    facts = types.SimpleNamespace(
        mesh=found,
        config=types.SimpleNamespace(excluded_outbound_ports=rules),
        controller=types.SimpleNamespace(ports=(17070,)),
        application="app",
    )
    return list(istiod.settings(facts))


def test_settings_that_are_there_are_no_concern():
    assert judged(ALIVE) == []


def test_namespace_that_is_not_known_is_told_by_the_option():
    (namespace, _) = judged(OUTSIDE)
    assert "istiod-managed calls https://istiod.example:15017/inject" in namespace.seen
    assert namespace.next == "juju config app istiod-namespace=NAMESPACE"


@pytest.mark.parametrize("rules", [(), (SOME,), (OTHER,)])
def test_what_is_let_out_is_told_by_the_option(rules):
    (found,) = judged(INSTALLED, *rules)
    assert found.level.value == "!"
    assert found.next == (
        "if so: juju config app "
        "excluded-outbound-ports='[{pods: app.kubernetes.io/name, ports: [17070]}]'"
    )


@pytest.mark.parametrize("rules", [(EVERY,), (CHARMS,), (OTHER, CHARMS)])
def test_what_the_operator_told_is_not_asked_again(rules):
    assert judged(INSTALLED, *rules) == []


def test_what_is_not_captured_is_let_out():
    assert judged(dataclasses.replace(INSTALLED, captures_outbound=False)) == []
