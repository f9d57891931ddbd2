"""Calls out of the model that a proxy would break."""

import pytest

from istio_integrator.diagnosis.checks import egress

OUT = {"namespace": "a", "name": "default"}


def sidecar(**spec):
    return {"kind": "Sidecar", "metadata": OUT, "spec": spec}


@pytest.mark.parametrize(
    ("sidecars", "registry_only", "words"),
    [
        pytest.param([], False, "", id="open"),
        pytest.param([], True, "REGISTRY_ONLY", id="closed"),
        pytest.param([sidecar(egress=[{"hosts": ["./*"]}])], False, "limits", id="sidecar"),
        pytest.param([sidecar(egress=[{"hosts": ["*/*"]}])], False, "", id="sidecar-all"),
        pytest.param(
            [sidecar(outboundTrafficPolicy={"mode": "REGISTRY_ONLY"})],
            False,
            "limits the hosts",
            id="sidecar-registry",
        ),
    ],
)
def test_what_proxies_let_out(sidecars, registry_only, words):
    (found,) = egress.judge_registry(
        sidecars, registry_only=registry_only, namespaces=("a", "istio-system")
    )
    assert (found.level.value, words in found.seen) == ("!" if words else "✓", True)


def test_sidecar_of_another_namespace_says_nothing():
    one = {**sidecar(egress=[{"hosts": ["./*"]}]), "metadata": {"namespace": "b", "name": "x"}}
    (found,) = egress.judge_registry([one], registry_only=False, namespaces=("a",))
    assert found.level.value == "✓"


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
