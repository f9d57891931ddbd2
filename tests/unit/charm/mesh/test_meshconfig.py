import pytest

from istio_integrator.mesh import meshconfig


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ('{"global": {"proxy": {"excludeOutboundPorts": "3306,5432"}}}', (3306, 5432)),
        ('{"global": {"proxy": {"excludeOutboundPorts": ""}}}', ()),
        ('{"global": {"proxy": {"excludeOutboundPorts": "*"}}}', ()),
        ('{"global": null}', ()),
        ("[]", ()),
        ("{", ()),
    ],
)
def test_ports_that_every_proxy_leaves_alone_are_read_as_far_as_they_can_be(values, want):
    assert meshconfig.excluded_ports({"data": {"values": values}}) == want


def sidecar(namespace, mode="", **spec):
    """A Sidecar, whose policy is the mesh's where the mode is empty."""
    outbound = {"outboundTrafficPolicy": {"mode": mode}} if mode else {}
    return {"metadata": {"namespace": namespace}, "spec": {**outbound, **spec}}


OF_PODS = {"workloadSelector": {"labels": {"app": "x"}}}
CLOSED = {"outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}}


@pytest.mark.parametrize(
    ("settings", "sidecars", "want"),
    [
        pytest.param({}, [], False, id="nothing said"),
        pytest.param(CLOSED, [], True, id="the mesh"),
        pytest.param({}, [sidecar("istio-system", "REGISTRY_ONLY")], True, id="root"),
        pytest.param({}, [sidecar("m", "REGISTRY_ONLY")], True, id="model"),
        pytest.param(
            CLOSED,
            [sidecar("istio-system", "REGISTRY_ONLY"), sidecar("m", "ALLOW_ANY")],
            False,
            id="nearest wins",
        ),
        pytest.param(CLOSED, [sidecar("m")], True, id="model says nothing"),
        pytest.param({}, [sidecar("m", "REGISTRY_ONLY", **OF_PODS)], True, id="some pods"),
        pytest.param(CLOSED, [sidecar("m", "ALLOW_ANY", **OF_PODS)], True, id="all but some"),
        pytest.param(
            {}, [sidecar("istio-system", "REGISTRY_ONLY", **OF_PODS)], False, id="root's own pods"
        ),
    ],
)
def test_what_proxies_let_out_is_the_nearest_sidecars_word(settings, sidecars, want):
    assert meshconfig.is_registry_only(settings, sidecars, model="m") is want
