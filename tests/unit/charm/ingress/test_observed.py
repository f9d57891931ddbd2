import pytest

from istio_integrator.ingress import choice, gateway, observed

LABELS = {"app": "istio-ingressgateway", "istio": "ingressgateway"}
HTTP = {"name": "http2", "port": 80}
HTTPS = {"name": "https", "port": 443}


def workload(namespace="istio-ingress", name="istio-ingressgateway", **changes):
    values = {"labels": LABELS, "is_gateway": True, "ready": True, **changes}
    return observed.Workload(namespace, name, **values)


def service(namespace="istio-ingress", name="istio-ingressgateway", ports=(HTTP, HTTPS), **marks):
    return observed.Service.of(
        {
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"selector": marks or LABELS, "ports": list(ports)},
        }
    )


def a_gateway(reference, *hosts, selector=None, port=80):
    namespace, _, name = reference.partition("/")
    servers = [{"port": {"number": port, "name": "http"}, "hosts": list(hosts)}]
    spec = {"selector": {"istio": "ingressgateway"} if selector is None else selector}
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {**spec, "servers": servers},
    }


def wishes(**changes):
    return choice.GatewayOptions(model="kubeflow", **changes)


def found(**changes):
    values = {"workloads": [workload()], "services": [service()], **changes}
    running = {one.reference for one in values["workloads"]}
    return choice.Inventory(**{"running": running, **values})


def test_only_ingress_gateway_of_the_cluster_is_found():
    target = choice.resolve(wishes(), found())
    assert target == gateway.Target(
        namespace="istio-ingress",
        selector={"istio": "ingressgateway"},
        service="istio-ingressgateway",
        http_port=80,
        https_port=443,
        ready=True,
        workload="istio-ingressgateway",
    )


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(workload(name="istio-egressgateway"), id="egress by name"),
        pytest.param(
            workload(name="out", labels={"istio": "egressgateway"}), id="egress by its label"
        ),
        pytest.param(
            workload(name="web", labels={"app": "web"}, is_gateway=False), id="no gateway"
        ),
        pytest.param(
            workload(name="gw", labels={"gateway.networking.k8s.io/gateway-name": "gw"}),
            id="of the Gateway API",
        ),
    ],
)
def test_workload_that_is_no_ingress_gateway_is_no_candidate(other):
    assert isinstance(choice.resolve(wishes(), found(workloads=[other])), gateway.Missing)
    both = found(workloads=[other, workload()])
    assert isinstance(choice.resolve(wishes(), both), gateway.Target)


def test_several_ingress_gateways_are_named():
    two = found(workloads=[workload(), workload("edge", "gw", labels={"istio": "edge"})])
    refusal = choice.resolve(wishes(), two)
    assert isinstance(refusal, gateway.Refusal)
    assert "edge/gw, istio-ingress/istio-ingressgateway" in refusal.message
    assert "gateway-service" in refusal.message


def test_service_option_chooses_among_several_gateways():
    edge = workload("edge", "gw", labels={"istio": "edge"})
    services = [service(), service("edge", "gw", istio="edge")]
    two = found(workloads=[workload(), edge], services=services)
    target = choice.resolve(wishes(service="edge/gw"), two)
    assert isinstance(target, gateway.Target)
    assert (target.namespace, target.selector) == ("edge", {"istio": "edge"})


def test_selector_is_copied_from_the_gateway_that_is_named():
    shared = a_gateway("istio-ingress/shared", "other.example.com", selector={"istio": "edge"})
    edge = workload("edge", "gw", labels={"istio": "edge"})
    cluster = found(
        workloads=[workload(), edge],
        services=[service(), service("edge", "gw", istio="edge")],
        gateways=[shared],
    )
    target = choice.resolve(wishes(gateway="istio-ingress/shared", hosts=("kf.example",)), cluster)
    assert isinstance(target, gateway.Target)
    assert target.namespace == "edge"
    assert [one.reference for one in target.neighbours] == ["istio-ingress/shared"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (wishes(gateway="a/b"), "waiting for Gateway a/b"),
        (wishes(selector="istio=nothing"), "none matches gateway-selector"),
        (wishes(service="istio-ingress/other"), "waiting for Service istio-ingress/other"),
    ],
)
def test_what_is_not_there_is_waited_for(wanted, words):
    missing = choice.resolve(wanted, found())
    assert isinstance(missing, gateway.Missing)
    assert words in missing.message


def test_selector_that_matches_in_two_namespaces_is_refused():
    two = found(workloads=[workload(), workload("other")])
    refusal = choice.resolve(wishes(selector="istio=ingressgateway"), two)
    assert isinstance(refusal, gateway.Refusal)
    assert "other/istio-ingressgateway" in refusal.message


def test_empty_hosts_beside_another_gateway_are_refused_by_its_name():
    cluster = found(gateways=[a_gateway("shop/web", "shop.example.com")])
    refusal = choice.resolve(wishes(), cluster)
    assert isinstance(refusal, gateway.Refusal)
    assert "shop/web" in refusal.message
    assert "set hosts" in refusal.message


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(a_gateway("kubeflow/kubeflow-gateway", "*"), id="our own"),
        pytest.param(
            a_gateway("shop/web", "*", selector={"istio": "edge"}), id="another workload"
        ),
        pytest.param(a_gateway("shop/web", "*", selector={}), id="no workload"),
    ],
)
def test_gateway_that_is_no_neighbour_does_not_matter(other):
    target = choice.resolve(wishes(), found(gateways=[other]))
    assert isinstance(target, gateway.Target)
    assert target.neighbours == ()


def test_host_that_a_neighbour_serves_is_refused():
    cluster = found(gateways=[a_gateway("shop/web", "shop/KF.example.com")])
    refusal = choice.resolve(wishes(hosts=("kf.example.com",)), cluster)
    assert isinstance(refusal, gateway.Refusal)
    assert "kf.example.com" in refusal.message


@pytest.mark.parametrize(
    "theirs", ["a.kf.example.com", "shop/A.KF.example.com", "*.a.kf.example.com"]
)
def test_wildcard_around_a_neighbours_host_needs_https(theirs):
    cluster = found(gateways=[a_gateway("shop/web", theirs)])
    hosts = ("*.kf.example.com",)
    refusal = choice.resolve(wishes(hosts=hosts), cluster)
    assert isinstance(refusal, gateway.Refusal)
    assert "shop/web" in refusal.message
    assert "a.kf.example.com" in refusal.message
    assert isinstance(choice.resolve(wishes(hosts=hosts), found()), gateway.Target)
    assert isinstance(
        choice.resolve(wishes(hosts=hosts, only_https=True), cluster), gateway.Target
    )


@pytest.mark.parametrize("theirs", ["kf.example.com", "*.example.com", "*", "akf.example.com"])
def test_wildcard_beside_a_neighbours_hosts_is_served(theirs):
    cluster = found(gateways=[a_gateway("shop/web", theirs)])
    answer = choice.resolve(wishes(hosts=("*.kf.example.com",)), cluster)
    assert isinstance(answer, gateway.Target)


def test_gateway_elsewhere_is_refused_where_istiod_is_scoped():
    refusal = choice.resolve(wishes(), found(scoped=True))
    assert isinstance(refusal, gateway.Refusal)
    assert observed.SCOPE_SETTING in refusal.message
    own = found(workloads=[workload("kubeflow")], services=[service("kubeflow")], scoped=True)
    assert isinstance(choice.resolve(wishes(), own), gateway.Target)


@pytest.mark.parametrize(
    ("ports", "want"),
    [
        ((HTTP, HTTPS), (80, 443)),
        (({"name": "status", "port": 15021}, {"name": "http-web", "port": 8080}), (8080, None)),
        (({"name": "https-x", "port": 8443},), (None, 8443)),
        (({"port": 80},), (80, None)),
        (({"name": "http3", "port": 8080}, {"name": "http2", "port": 81}), (81, None)),
    ],
)
def test_ports_are_those_of_the_service(ports, want):
    target = choice.resolve(wishes(), found(services=[service(ports=ports)]))
    assert isinstance(target, gateway.Target)
    assert (target.http_port, target.https_port) == want


def test_several_services_are_named_unless_one_is_chosen():
    cluster = found(services=[service(), service(name="internal")])
    refusal = choice.resolve(wishes(), cluster)
    assert isinstance(refusal, gateway.Refusal)
    assert "istio-ingress/internal" in refusal.message
    target = choice.resolve(wishes(service="istio-ingress/internal"), cluster)
    assert isinstance(target, gateway.Target)
    assert target.service == "internal"


def test_service_without_a_web_port_is_none():
    cluster = found(services=[service(ports=({"name": "tcp", "port": 5000},))])
    assert isinstance(choice.resolve(wishes(), cluster), gateway.Missing)


def test_workload_is_read_from_what_both_installers_write():
    router = {"name": "istio-proxy", "args": ["proxy", "router"]}
    injected = {"annotations": {"inject.istio.io/templates": "gateway"}, "labels": LABELS}
    for template, is_gateway in (
        ({"metadata": {"labels": LABELS}, "spec": {"containers": [router]}}, True),
        ({"metadata": injected, "spec": {"containers": [{"name": "istio-proxy"}]}}, True),
        ({"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "web"}]}}, False),
    ):
        obj = {
            "metadata": {"namespace": "a", "name": "b"},
            "spec": {"template": template},
            "status": {"readyReplicas": 1},
        }
        assert observed.Workload.of(obj) == workload("a", "b", is_gateway=is_gateway)


def test_scope_setting_is_read_from_istiod():
    def istiod(value):
        env = [{"name": observed.SCOPE_SETTING, "value": value}, {"name": "X"}]
        return {"spec": {"template": {"spec": {"containers": [{"env": env}, {}]}}}}

    assert observed.is_scoped(istiod("true"))
    assert not observed.is_scoped(istiod("false"))
    assert not observed.is_scoped(None)


@pytest.mark.parametrize(
    ("balancers", "want"),
    [
        ([{"ip": "10.64.140.43"}], "10.64.140.43"),
        ([{"hostname": "lb.example.com", "ip": "10.0.0.1"}], "lb.example.com"),
        ([{"ip": "fd00::1"}, {"ip": "10.0.0.2"}], "fd00::1"),
        ([{"hostname": "a b\n"}], ""),
        ([{"hostname": "x" * 254}], ""),
        ([{"hostname": 5}], ""),
        (["10.0.0.1"], ""),
        ("10.0.0.1", ""),
        (None, ""),
    ],
)
def test_address_of_a_load_balancer_is_read_where_it_is_one(balancers, want):
    metadata = {"name": "gateway", "namespace": "istio-ingress"}
    status = {"loadBalancer": {"ingress": balancers}}
    found = observed.Service.of({"metadata": metadata, "status": status})
    assert found.address == want
