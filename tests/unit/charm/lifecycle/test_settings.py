"""How options and mesh reach the workload."""

import dataclasses
import io
import types

import pytest

from integrator_contract import seen, service
from istio_integrator.lifecycle import settings
from tests.unit.charm.lifecycle.world import context

MEMBER = service.Options(
    model="kubeflow",
    application="app",
    unit="app/0",
    leader=True,
    joined=True,
    mesh_namespace="istio-system",
    mesh_revision="default",
)


def test_settings_of_a_member(fake):
    made = settings.make(context(fake), None, joined=True)
    assert len(made.token) == 32
    assert made == dataclasses.replace(MEMBER, token=made.token)


def test_token_stays_and_is_written_nowhere_else(fake):
    told = dataclasses.replace(MEMBER, token="secret")
    made = settings.make(context(fake), told, joined=False)
    assert made.token == "secret"
    assert "secret" not in repr(made)


def test_status_port_stays_while_there_is_no_mesh_to_ask(fake):
    told = dataclasses.replace(MEMBER, status_port=15099)
    alone = dataclasses.replace(context(fake), mesh=None)
    assert settings.make(alone, told, joined=False).status_port == 15099


@pytest.mark.parametrize("text", [b"", b"{}", b'{"model": "\xe4"}', b"[" * 9999])
def test_settings_that_can_not_be_read_are_not_known(text):
    container = types.SimpleNamespace(pull=lambda *_, **__: io.BytesIO(text))
    assert settings.read(container) is None


def test_only_members_converge(fake):
    assert settings.make(context(fake), None, joined=False).restart_pods == "off"
    manual = context(fake, restart_pods="manual")
    assert settings.make(manual, None, joined=True).restart_pods == "manual"


def test_gateways_are_observed_where_somebody_is_to_be_reached(fake):
    exposing = dataclasses.replace(context(fake), exposes=True)
    assert settings.make(exposing, None, joined=True).gateway == service.Gateway()


@pytest.mark.parametrize(
    "leader",
    [True, False],
)
def test_leader_goes_on_expecting_routes(fake, leader):
    expected = seen.Expectation(
        namespace="ingress",
        selector={},
        gateway="kubeflow/gw",
        servers=(),
        filters=(),
        entry="ask",
    )
    told = dataclasses.replace(MEMBER, expected=expected)
    now = dataclasses.replace(context(fake), leader=leader)
    assert settings.make(now, told, joined=True).expected == (expected if leader else None)
