"""The agent's port: its own annotation, then the proxy's configuration, then the mesh."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.shell.shutdown import sources

from integrator_contract import names
from integrator_contract.answers import Action
from tests.unit.cases import cases
from tests.unit.workload import pods

CONFIG = "proxy.istio.io/config"
MESH = finished.Policy(status_port=17020)


@cases(
    ("config", "port"),
    yaml=("statusPort: 16020", 16020),
    json=('{"statusPort": 16020}', 16020),
    the_field_s_other_spelling=("status_port: 16020", 16020),
    quoted=('statusPort: "16020"', 16020),
    last_wins=("statusPort: 1\nstatusPort: 16020", 16020),
    switched_off=("statusPort: 0", 0),
    says_nothing=("concurrency: 2", 17020),
    nested=("proxyMetadata:\n  statusPort: '16020'", 17020),
    comment=("# statusPort: 16020", 17020),
    no_port=("statusPort: 65536", 17020),
    no_number=("statusPort: true", 17020),
    a_list=("statusPort: [16020]", 17020),
    no_mapping=("- statusPort", 17020),
    alias=("statusPort: &a 16020\nx: *a", 17020),
    no_yaml=("statusPort: {", 17020),
    too_long=("statusPort: 16020\n" + "#" * 100_000, 17020),
    too_deep=("statusPort: " + "[" * 5000, 17020),
)
def test_status_port_of_the_proxys_configuration_comes_before_the_meshs(config: str, port: int):
    decision = finished.finished(pods.pod(annotations={CONFIG: config}), MESH)

    assert (decision.action, decision.port) == (Action.STOP, port)


def test_status_port_of_the_pods_own_annotation_comes_first():
    said = {names.STATUS_PORT: "18020", CONFIG: "statusPort: 16020"}

    assert finished.finished(pods.pod(annotations=said), MESH).port == 18020


@given(
    st.sampled_from(["", "18020", "x"]), st.sampled_from(["statusPort: 16020", "", "a: b", "{"])
)
def test_status_port_survives_what_is_dropped_to_save_memory(own: str, config: str):
    pod = pods.pod(annotations={names.STATUS_PORT: own, CONFIG: config})
    whole = finished.finished(pod, MESH)
    sources.compact(pod)

    assert finished.finished(pod, MESH) == whole
    assert CONFIG not in pod.metadata.annotations
