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
from tests.kubernetes_objects import endpoint_slice, made, namespace_of

MODEL, USER = "kf", "kf-user"
ISTIO = f"istio-{USER}"
NAME = f"istio-integrator.{MODEL}.istio-integrator.training"
LABELS = {"istio-integrator.charmhub.io/pod-traffic": "mutual-tls"}
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile", "istio-injection": "enabled"}
SHOP = "kf-user-2"
KINDS = {"dynamic_listeners": "listener", "dynamic_route_configs": "route_config"} | dict.fromkeys(
    ("dynamic_active_clusters", "dynamic_warming_clusters"), "cluster"
)
"""What Envoy shows of its configuration, with the name of the part that istiod sent."""
SETTINGS = {"trustDomain": "ml.example", "outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}}


def called():
    """Services of each kind in another namespace, with a pod in the networks of pods."""
    hidden = {"networking.istio.io/exportTo": "."}
    for number, (kind, spec) in enumerate({"web": {}, "pods": {"clusterIP": "None"}}.items()):
        for name, notes in ((kind, {}), (f"{kind}-hidden", hidden)):
            numbers = {"http": 7070 + number, "tcp": 9000 + number}
            ports = [{"name": each, "port": port} for each, port in numbers.items()]
            yield made(
                *("v1", "Service", name, SHOP, {**spec, "ports": ports}),
                metadata={"annotations": notes},
            )
            yield endpoint_slice(name, SHOP, f"10.1.7.{number + 1}", *ports)


@pytest.fixture
def sidecar(connected, client, kubeconfig, tmp_path):
    """The administration of a labelled pod's Envoy in a profile, which istiod configures."""
    istiod_world.install_definitions(client)
    spaces = [
        *(connected.create(namespace_of(name)) for name in (MODEL, ISTIO)),
        connected.create(namespace_of(USER, **PROFILE)),
        connected.create(namespace_of(SHOP)),
    ]
    for each in called():
        connected.create(each)
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


def dumped(admin):
    """What Envoy has taken, by resource and name: a single answer, so nothing moves meanwhile.

    Listeners and clusters wait for certificates here.
    """
    parts = json.loads(istiod_world.administration(admin, "config_dump"))["configs"]
    given = {}
    for resource, kind in KINDS.items():
        entries = [entry for part in parts for entry in part.get(resource, ())]
        assert not any("error_state" in each for each in entries)
        found = [each.get("warming_state", each) for each in entries]
        given[resource] = {each[kind]["name"]: each[kind] for each in found if kind in each}
    return given


def others(admin):
    """Everything that istiod sent, without the charm's filter chains and its cluster."""
    found = {kind: {} for kind in KINDS.values()}
    for resource, given in dumped(admin).items():
        found[KINDS[resource]] |= given
    found["cluster"].pop(NAME, None)
    outbound = found["listener"]["virtualOutbound"]
    outbound["filter_chains"] = [
        each for each in outbound["filter_chains"] if not each["name"].startswith(NAME)
    ]
    return found


def chains(admin):
    """The networks of the charm's filter chains, with the clusters to which they lead."""
    listener = dumped(admin)["dynamic_listeners"].get("virtualOutbound", {})
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
    assert waiting.eventually(lambda: "virtualOutbound" in dumped(sidecar)["dynamic_listeners"])
    before = others(sidecar)
    assert not gateway_looks.has_chain(sidecar, USER, "bert-0", NAME)
    charm_runs.run("config_changed", MODEL, **options)
    wanted = dict.fromkeys(networks.split(","), (NAME, "0s"))
    assert waiting.eventually(lambda: chains(sidecar) == wanted), chains(sidecar)
    assert gateway_looks.has_chain(sidecar, USER, "bert-0", NAME)
    beside = others(sidecar)
    assert {
        f"outbound|{port}||{name}.{SHOP}.svc.cluster.local"
        for name, port in (("web", 7070), ("web", 9000), ("pods", 7071), ("pods", 9001))
    } <= beside["cluster"].keys()
    assert not [each for each in beside["cluster"] if "hidden" in each]
    cluster = dumped(sidecar)["dynamic_warming_clusters"][NAME]
    assert cluster["type"] == "ORIGINAL_DST"
    context = cluster["transport_socket"]["typed_config"]["common_tls_context"]
    combined = context["combined_validation_context"]
    (san,) = combined["default_validation_context"]["match_typed_subject_alt_names"]
    assert san["matcher"] == {"prefix": f"spiffe://ml.example/ns/{USER}/sa/"}
    assert combined["validation_context_sds_secret_config"]["name"] == "ROOTCA"
    charm_runs.run("remove", MODEL, units=0, **options)
    assert waiting.eventually(lambda: not chains(sidecar)), chains(sidecar)
    # So calls to Services and to hosts outside stay, whatever hides them or REGISTRY_ONLY allows.
    # istiod may have sent a late Service in between, before or after the filter.
    assert beside in (before, others(sidecar))
