"""What our Gateway says of the gateway that serves the model, and what is read from it again."""

import dataclasses

import pytest

from istio_integrator.ingress import gateway
from istio_integrator.kube import manifests

TARGET = gateway.Target(
    namespace="istio-ingress",
    selector={"istio": "ingressgateway"},
    service="istio-ingressgateway",
    http_port=80,
    https_port=443,
    hosts=("a.example.com", "b.example.com"),
)
HOSTS = [*TARGET.hosts]


def opened(credential="", **changes):
    """Our Gateway for a target."""
    target = dataclasses.replace(TARGET, **changes)
    context = gateway.Context.of(target, credential)
    (found,) = manifests.render(gateway.FOLDER, context)
    return found


def test_gateway_is_of_the_workload_that_was_chosen():
    found = opened()

    assert found["metadata"] == {"name": gateway.NAME}
    assert found["spec"]["selector"] == TARGET.selector


def test_every_port_serves_the_hosts_by_https_where_there_is_a_certificate():
    plain, *secure = opened("tls")["spec"]["servers"]

    assert plain == {"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": HOSTS}
    assert [(one["port"]["number"], one["port"]["name"]) for one in secure] == [
        (443, "https"),
    ]
    for one in secure:
        assert one["port"]["protocol"] == "HTTPS"
        assert one["hosts"] == HOSTS
        assert (one["tls"]["mode"], one["tls"]["credentialName"]) == ("SIMPLE", "tls")
        assert one["tls"]["minProtocolVersion"] in ("TLSV1_2", "TLSV1_3")


def test_every_port_serves_the_hosts_without_tls_where_there_is_no_certificate():
    assert opened()["spec"]["servers"] == [
        {"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": HOSTS},
    ]


@pytest.mark.parametrize(
    ("credential", "ports"), [("tls", [80, 443]), ("", [80])], ids=["with", "without"]
)
def test_nothing_but_redirects_is_without_tls_where_https_is_a_must(credential, ports):
    plain, *others = opened(credential, only_https=True)["spec"]["servers"]

    assert plain["tls"] == {"httpsRedirect": True}
    assert [one["port"]["number"] for one in (plain, *others)] == ports
    assert all(one["tls"]["mode"] == "SIMPLE" for one in others)


@pytest.mark.parametrize("only_https", [True, False])
@pytest.mark.parametrize("credential", ["tls", ""])
@pytest.mark.parametrize("hosts", [TARGET.hosts, ()], ids=["hosts", "any host"])
def test_what_is_served_is_read_from_the_gateway_again(credential, hosts, only_https):
    target = dataclasses.replace(TARGET, hosts=hosts, only_https=only_https)
    found = opened(credential, hosts=hosts, only_https=only_https)

    assert gateway.credential(found) == credential
    assert gateway.is_served(found, target)
    assert gateway.redirects(found) is only_https


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"selector": {"istio": "another"}}, id="another workload"),
        pytest.param({"http_port": 8080}, id="another port"),
        pytest.param({"hosts": ("a.example.com",)}, id="fewer hosts"),
        pytest.param({"hosts": ()}, id="any host"),
    ],
)
def test_what_another_target_would_take_away_is_not_served_by_it(changes):
    assert not gateway.is_served(opened("tls"), dataclasses.replace(TARGET, **changes))
