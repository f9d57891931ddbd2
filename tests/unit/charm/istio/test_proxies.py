"""What a pod shows of its proxy."""

import pytest

from istio_integrator.istio import proxies

LABELS = {"operator.juju.is/name": "modeloperator"}


def pod(*, annotations=None, init=(), containers=("juju-operator",), image="proxy:1"):
    return {
        "metadata": {
            "name": "modeloperator-x",
            "namespace": "kubeflow",
            "labels": LABELS,
            "annotations": annotations or {},
        },
        "spec": {
            "containers": [{"name": name} for name in containers],
            "initContainers": [{"name": name, "image": image} for name in init],
        },
    }


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(pod(), False, id="as it should be"),
        pytest.param(pod(containers=("juju-operator", "istio-proxy")), True, id="classic"),
        pytest.param(pod(init=("istio-proxy",)), True, id="native"),
        pytest.param(pod(init=("istio-proxy",), image="auto"), False, id="not injected yet"),
        pytest.param(
            pod(annotations={"ambient.istio.io/redirection": "enabled"}), True, id="ambient"
        ),
    ],
)
def test_it_is_in_the_mesh(given, want):
    assert proxies.is_in_mesh(given) is want
