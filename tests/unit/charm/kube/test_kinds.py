"""The kinds that the charm reads and writes are addressed as the API has them."""

import importlib

import pytest
from lightkube.core import resource

from istio_integrator.kube import cluster


def of_lightkube(kind):
    """The class that lightkube has for one of Kubernetes' own kinds; None for one of others."""
    group, _, version = kind.api_version.rpartition("/")
    name = group.removesuffix(".k8s.io").replace(".", "_") or "core"
    try:
        module = importlib.import_module(f"lightkube.resources.{name}_{version}")
    except ModuleNotFoundError:
        return None
    return getattr(module, kind.name, None)


KUBERNETES_OWN = [kind for kind in cluster.KINDS.values() if of_lightkube(kind)]


@pytest.mark.parametrize("kind", KUBERNETES_OWN, ids=lambda kind: "/".join(kind[:2]))
def test_kind_of_kubernetes_is_called_as_the_api_calls_it_and_is_where_it_has_it(kind):
    known = of_lightkube(kind)
    info = known._api_info
    assert kind.plural == info.plural
    assert kind.namespaced == issubclass(known, resource.NamespacedResource)


def test_most_kinds_are_known_to_lightkube():
    groups = {kind.api_version for kind in KUBERNETES_OWN}
    assert {"v1", "apps/v1", "coordination.k8s.io/v1", "rbac.authorization.k8s.io/v1"} <= groups
