import pytest

from istio_integrator.situation import situation

KUBELET = """search kubeflow.svc.{domain} svc.{domain} {domain} example.com
nameserver 10.96.0.10
options ndots:5
"""


@pytest.mark.parametrize(
    ("resolver", "domain"),
    [
        pytest.param(KUBELET.format(domain="cluster.local"), "cluster.local", id="usual"),
        pytest.param(KUBELET.format(domain="k8s.example"), "k8s.example", id="another"),
        pytest.param(KUBELET.format(domain="k8s.example."), "k8s.example", id="with-a-dot"),
        pytest.param("nameserver 192.0.2.1\nsearch example.com\n", "cluster.local", id="no-pod"),
        pytest.param("search\n", "cluster.local", id="nothing-to-search"),
        pytest.param("", "cluster.local", id="empty"),
    ],
)
def test_domain_of_the_cluster_is_what_the_kubelet_has_pods_search(resolver, domain):
    assert situation.cluster_domain(resolver) == domain
