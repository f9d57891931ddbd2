"""Calls out of the model that a proxy would break."""

import pytest

from istio_integrator.diagnosis.checks import egress

OUT = {"namespace": "a", "name": "default"}


def sidecar(**spec):
    return {"kind": "Sidecar", "metadata": OUT, "spec": spec}


@pytest.mark.parametrize(
    ("sidecars", "entries", "registry_only", "level", "words"),
    [
        pytest.param([], [], False, "✓", "let calls out", id="open"),
        pytest.param([], [], True, "!", "pods reach nothing", id="closed"),
        pytest.param(
            [], [{"spec": {"hosts": ["s3.aws"]}}], True, "!", "pods reach s3.aws", id="entries"
        ),
        pytest.param(
            [sidecar(egress=[{"hosts": ["./*"]}])], [], False, "!", "only ./*", id="sidecar"
        ),
        pytest.param([sidecar(egress=[{"hosts": ["*/*"]}])], [], False, "✓", "", id="sidecar-all"),
        pytest.param(
            [sidecar(outboundTrafficPolicy={"mode": "REGISTRY_ONLY"})],
            [],
            False,
            "!",
            "only what Istio knows",
            id="sidecar-registry",
        ),
    ],
)
def test_what_proxies_let_out(sidecars, entries, registry_only, level, words):
    (found,) = egress.judge_registry(
        sidecars, entries, registry_only=registry_only, namespaces=("a", "istio-system")
    )
    assert (found.level.value, words in found.seen) == (level, True)


def test_sidecar_of_another_namespace_says_nothing():
    one = {**sidecar(egress=[{"hosts": ["./*"]}]), "metadata": {"namespace": "b", "name": "x"}}
    (found,) = egress.judge_registry([one], [], registry_only=False, namespaces=("a",))
    assert found.level.value == "✓"


@pytest.mark.parametrize(
    ("port", "wrong"),
    [
        ({"port": 3306, "name": "http-db"}, True),
        ({"port": 3306, "name": "mysql"}, False),
        ({"port": 3306}, False),
        ({"port": 5432, "name": "db", "appProtocol": "http"}, True),
        ({"port": 80, "name": "http"}, False),
    ],
)
def test_protocol_of_a_service_where_the_server_speaks_first(port, wrong):
    service = {"kind": "Service", "metadata": OUT, "spec": {"ports": [port]}}
    assert bool(list(egress.judge_protocols([service]))) == wrong


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
    ("pod", "needed", "cut"),
    [
        pytest.param(charm(), True, True, id="cut-off"),
        pytest.param(charm(), False, False, id="no-need"),
        pytest.param(charm(**{PORTS: "443, 17070"}), True, False, id="past-the-proxy"),
        pytest.param(charm(**{PORTS: "443"}), True, True, id="another-port"),
    ],
)
def test_charm_must_reach_its_controller(pod, needed, cut):
    found = list(egress.judge_controller([pod], [17070], needed=needed))
    assert bool(found) == cut
    assert all(each.next == "kubectl -n a delete pod minio-0" for each in found)
