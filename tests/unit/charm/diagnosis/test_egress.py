"""Calls out of the model that a proxy would break."""

import dataclasses
import types

import pytest

from istio_integrator.diagnosis.checks import egress
from tests.unit.charm.diagnosis.objects import ALIVE


@pytest.mark.parametrize(("registry_only", "level"), [(True, "!"), (False, "✓")])
def test_what_proxies_let_out(registry_only, level):
    mesh = dataclasses.replace(ALIVE, registry_only=registry_only, captures_outbound=False)
    (found,) = egress.egress(types.SimpleNamespace(mesh=mesh))
    assert (found.level.value, "REGISTRY_ONLY" in found.seen) == (level, registry_only)


def charm(**annotations):
    marks = {key.replace("_", "/"): value for key, value in annotations.items()}
    return {
        "kind": "Pod",
        "metadata": {
            "name": "minio-0",
            "namespace": "a",
            "labels": {"app.kubernetes.io/name": "minio"},
            "annotations": marks,
        },
        "spec": {"containers": [{"name": "charm"}, {"name": "istio-proxy"}]},
    }


PORTS = "traffic.sidecar.istio.io_excludeOutboundPorts"


@pytest.mark.parametrize(
    ("pod", "cut"),
    [
        pytest.param(charm(), True, id="cut-off"),
        pytest.param(charm(**{PORTS: "443, 17070"}), False, id="past-the-proxy"),
        pytest.param(charm(**{PORTS: "443"}), True, id="another-port"),
    ],
)
def test_charm_must_reach_its_controller(pod, cut):
    found = list(egress.judge_controller([pod], [17070]))
    assert bool(found) == cut
    assert all(each.next == "kubectl -n a delete pod minio-0" for each in found)
