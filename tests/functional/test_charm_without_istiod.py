"""The charm with the shipped roles, but without any right that is about istiod's own namespace."""

from __future__ import annotations

import lightkube
import pytest
import yaml
from ops import testing

from istio_integrator.kube import cluster as charm_cluster
from tests import rights, waiting
from tests.functional import charm_runs, loopback_istiod

ALLOWED = {"istio-injection": "enabled"}
OF_ISTIOD = ("configmaps", "endpointslices")
"""What the role about the mesh lets the charm read of istiod. It lists Deployments everywhere, for
those of gateways and of the model; reading istiod's own by its name is taken away as well."""
SETTINGS = (
    "meshConfig.defaultConfig.holdApplicationUntilProxyStarts=true",
    "meshConfig.defaultConfig.statusPort=15099",
    "meshConfig.rootNamespace=istio-config",
    r"values.global.proxy.excludeOutboundPorts=3306\,5432",
)


@pytest.fixture
def unknowing(control_plane, namespace, untrusted, monkeypatch):
    """The charm's connection, which shows it nothing in istiod's namespace."""
    roles = list(yaml.safe_load_all(rights.roles(namespace)))
    (mesh,) = (
        role for role in roles if role["metadata"]["name"].endswith("-mesh") and "rules" in role
    )
    mesh["rules"] = [rule for rule in mesh["rules"] if rule["resources"][0] not in OF_ISTIOD]
    (deployments,) = (rule for rule in mesh["rules"] if rule["resources"] == ["deployments"])
    deployments["verbs"].remove("get")
    control_plane.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(roles))
    account = f"--as=system:serviceaccount:{namespace}:istio-integrator"
    asked = ("auth", "can-i", "get", "configmaps/istio", "-n", "istio-system", account)
    assert waiting.eventually(
        lambda: control_plane.kubectl(*asked, check=False).stdout.strip() == "no", 20
    )
    with lightkube.Client(config=untrusted) as client:
        api = charm_cluster.Cluster(client)
        monkeypatch.setattr(charm_cluster, "connect", lambda: api)
        yield api


def test_model_joins_and_leaves_with_no_right_in_the_namespace_of_istiod(
    client, kubeconfig, unknowing, namespace, tmp_path
):
    admin = charm_cluster.Cluster(client)

    def joined():
        return admin.get(charm_cluster.NAMESPACE, namespace)["metadata"]["labels"]

    with loopback_istiod.installed(admin, kubeconfig, tmp_path, *SETTINGS):
        out = charm_runs.run("start", namespace)
        assert isinstance(out.unit_status, testing.ActiveStatus), out.unit_status
        assert out.unit_status.message.startswith("istio-system/istiod 1.31 · admission: webhook")
        assert ALLOWED.items() <= joined().items()
        found = charm_runs.discover(unknowing, namespace).mesh
        charm_runs.run("remove", namespace, units=0)
        assert not ALLOWED.items() <= joined().items()
    # A dry-run pod shows these.
    assert (found.alive, found.probed, found.version) == (True, True, "1.31.1")
    assert (found.hold_by_default, found.status_port) == (True, 15099)
    assert found.excluded_outbound_ports == (3306, 5432)
    # And these are not known: the usual is taken for them.
    assert not found.has_settings
    assert (found.root_namespace, found.registry_only) == ("istio-system", False)
