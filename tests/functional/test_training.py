"""What a real istiod and a real Envoy make of the EnvoyFilter for training jobs."""

import json

import pytest

from tests import waiting
from tests.functional import (
    charm_runs,
    gateway_looks,
    istiod_world,
    loopback_istiod,
    sidecar_world,
)
from tests.kubernetes_objects import made, namespace_of

MODEL, USER = "kf", "kf-user"
ISTIO = f"istio-{USER}"
NAME = f"istio-integrator.{MODEL}.istio-integrator.training"
LABELS = {"istio-integrator.charmhub.io/pod-traffic": "mutual-tls"}
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile", "istio-injection": "enabled"}
SETTINGS = {"trustDomain": "ml.example", "outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}}


@pytest.fixture
def sidecar(connected, client, kubeconfig, tmp_path):
    """The administration of a labelled pod's Envoy in a profile, which istiod configures."""
    istiod_world.install_definitions(client)
    spaces = [
        *(connected.create(namespace_of(name)) for name in (MODEL, ISTIO)),
        connected.create(namespace_of(USER, **PROFILE)),
    ]
    loopback_istiod.create_namespace(connected)
    settings = made("v1", "ConfigMap", "istio", ISTIO, data={"mesh": json.dumps(SETTINGS)})
    connected.create(settings)
    with (
        istiod_world.istiod(tmp_path, kubeconfig, SETTINGS) as xds,
        loopback_istiod.unanswered(connected, USER, "Ignore"),
        sidecar_world.configured(
            tmp_path,
            xds,
            *("bert-0", USER, LABELS),
            token=istiod_world.gateway_token(client, USER),
            interception="REDIRECT",
        ) as admin,
    ):
        yield admin
    for each in spaces:
        connected.delete(each)


def given(admin, resource):
    """The listeners or clusters that Envoy has taken; both wait for certificates here."""
    dumped = json.loads(istiod_world.administration(admin, f"config_dump?resource={resource}"))
    found = [each.get("warming_state", each) for each in dumped.get("configs", ())]
    assert not any("error_state" in each for each in dumped.get("configs", ()))
    kind = "listener" if "listeners" in resource else "cluster"
    return {each[kind]["name"]: each[kind] for each in found if kind in each}


def chains(admin):
    """The networks of the charm's filter chains, with the clusters to which they lead."""
    listener = given(admin, "dynamic_listeners").get("virtualOutbound", {})
    found = {}
    for each in listener.get("filter_chains", ()):
        ranges = each.get("filter_chain_match", {}).get("prefix_ranges", ())
        for one in ranges:
            config = each["filters"][-1]["typed_config"]
            network = f"{one['address_prefix']}/{one['prefix_len']}"
            found[network] = (config["cluster"], config["idle_timeout"])
    return found


def test_labelled_pod_calls_the_networks_of_pods_by_mutual_tls(sidecar):
    networks = "10.1.0.0/16,fd00:1::/48"
    options = {"istiod-namespace": ISTIO, "pod-networks": networks}
    assert waiting.eventually(lambda: "virtualOutbound" in given(sidecar, "dynamic_listeners"))
    assert not gateway_looks.has_chain(sidecar, USER, "bert-0", NAME)
    charm_runs.run("config_changed", MODEL, **options)
    wanted = dict.fromkeys(networks.split(","), (NAME, "0s"))
    assert waiting.eventually(lambda: chains(sidecar) == wanted), chains(sidecar)
    assert gateway_looks.has_chain(sidecar, USER, "bert-0", NAME)
    cluster = given(sidecar, "dynamic_warming_clusters")[NAME]
    assert cluster["type"] == "ORIGINAL_DST"
    context = cluster["transport_socket"]["typed_config"]["common_tls_context"]
    combined = context["combined_validation_context"]
    (san,) = combined["default_validation_context"]["match_typed_subject_alt_names"]
    assert san["matcher"] == {"prefix": f"spiffe://ml.example/ns/{USER}/sa/"}
    assert combined["validation_context_sds_secret_config"]["name"] == "ROOTCA"
    charm_runs.run("remove", MODEL, units=0, **options)
    assert waiting.eventually(lambda: not chains(sidecar)), chains(sidecar)
