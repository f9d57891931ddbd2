"""What is read of Services and of the kubelet's requests, for policies and for mutual TLS."""

import pytest

from istio_integrator.security import called, policies_workloads
from istio_integrator.security.called import Probe, ServicePort
from tests.unit.charm.security import members


def ports(*entries, **spec):
    (found,) = called.services([members.service("a", 1, ports=list(entries), **spec)])
    return found.ports


@pytest.mark.parametrize(
    ("entry", "want"),
    [
        pytest.param({"port": 80}, [ServicePort(80, 80)], id="to itself"),
        pytest.param(
            {"port": 80, "targetPort": "web", "name": "http"},
            [ServicePort(80, "web", "http")],
            id="to a name",
        ),
        pytest.param({"port": 65535, "name": "placeholder"}, [], id="Juju's placeholder"),
        pytest.param({"port": 65535}, [ServicePort(65535, 65535)], id="highest"),
        pytest.param({"port": 53, "protocol": "UDP"}, [], id="UDP"),
        pytest.param({"port": 80, "targetPort": 0.5}, [], id="no target"),
        pytest.param({"port": 80, "targetPort": 99999}, [], id="no port"),
    ],
)
def test_ports_of_a_service_are_those_that_a_proxy_gets(entry, want):
    assert list(ports(entry)) == want


def test_service_that_is_a_name_of_another_chooses_no_pods():
    (found,) = called.services([members.service("a", 80, type="ExternalName")])
    assert found.selector == ()


@pytest.mark.parametrize(
    ("container", "want"),
    [
        pytest.param(members.probed(8080, path="/live?x=1"), Probe(8080, "/live"), id="path"),
        pytest.param(members.probed("web"), Probe(8080, "/"), id="by name"),
        pytest.param(
            {"name": "a", "livenessProbe": {"grpc": {"port": 9}}},
            Probe(9, "/grpc.health.v1.Health/Check", "POST"),
            id="gRPC",
        ),
        pytest.param(
            {"name": "a", "lifecycle": {"preStop": {"httpGet": {"port": 9, "path": "bye"}}}},
            Probe(9, "/bye"),
            id="lifecycle",
        ),
        pytest.param(members.probed(8080, host="10.0.0.1"), None, id="somebody else"),
        pytest.param(members.probed(8080, path="/app-health/a/livez"), None, id="rewritten"),
        pytest.param(members.probed(15020, path="/x"), None, id="the agent's"),
    ],
)
def test_probes_that_reach_the_pods_own_port_are_the_same_for_policies_as_for_mutual_tls(
    container, want
):
    pod = members.pod("a", container)
    assert called.probes(called.containers(pod)) == ([want] if want else [])
    assert policies_workloads.Pod.of(pod).probes == ((want,) if want else ())


def test_path_that_would_mean_others_in_a_policy_is_not_admitted():
    pod = members.pod("a", members.probed(8080, path="/a*"))
    assert policies_workloads.Pod.of(pod).probes == ()
