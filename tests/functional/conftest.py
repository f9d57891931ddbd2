"""A real etcd and kube-apiserver for the functional tier, one for the whole run."""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import lightkube
import pytest
import yaml
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, Node, NodeStatus, ServiceAccount

from testbed import cluster
from tests import api, charm_access, rights
from tests.functional import charm_runs, ingress_world

LONGEST = (
    "test_routes",
    "test_transitions",
    "test_admission_floods",
    "test_guard_tenants",
    "test_models",
)
"""The modules that take longest start first, so that none of them runs alone at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[cluster.Testbed]:
    """Start a control plane without a node; its policy API is on."""
    testbed = cluster.Testbed(f"functional-{os.getpid()}")
    testbed.up(cluster.Options(control_plane_only=True))
    yield testbed
    testbed.down()


@pytest.fixture(scope="session")
def kubeconfig(control_plane: cluster.Testbed) -> Path:
    """The administrator's kubeconfig of the functional control plane."""
    return control_plane.kubeconfig


@pytest.fixture(scope="session")
def client(kubeconfig: Path) -> Iterator[lightkube.Client]:
    """A lightkube client with the administrator's rights."""
    with lightkube.Client(config=KubeConfig.from_file(kubeconfig).get()) as client:
        yield client


@pytest.fixture(scope="session")
def admin(kubeconfig: Path) -> Iterator[api.Api]:
    """The API server, with the administrator's rights."""
    config = KubeConfig.from_file(kubeconfig).get()
    assert config
    with api.Api(config) as made:
        yield made


@pytest.fixture(scope="session")
def webhooks(admin: api.Api) -> Iterator[None]:
    """Have the dry-run pods of charms marked, as their webhooks do."""
    with charm_runs.webhooks(admin):
        yield


@pytest.fixture
def connected(
    admin: api.Api, client: lightkube.Client, webhooks: None, monkeypatch: pytest.MonkeyPatch
) -> api.Api:
    """The API server, to which the charm connects as the administrator."""
    charm_access.connect(monkeypatch, client)
    return admin


@pytest.fixture(scope="module")
def place(
    client: lightkube.Client, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ingress_world.Place]:
    """A shared gateway with a model's ingress, applications and a neighbour."""
    folder = tmp_path_factory.mktemp("istiod")
    with ingress_world.serving(client, kubeconfig, folder) as found:
        yield found


@pytest.fixture
def unused(
    request: pytest.FixtureRequest, control_plane: cluster.Testbed, namespace: str
) -> Callable[[], list[tuple[str, str, str]]]:
    """List the rights for which `rbac/scenarios.yaml` names the test, and which it did not use."""

    def find() -> list[tuple[str, str, str]]:
        used = rights.used(control_plane.state_dir / "audit.log", MODEL=namespace)
        return sorted(rights.of_scenario(request.node.originalname) - used)

    return find


@pytest.fixture
def untrusted(
    control_plane: cluster.Testbed,
    kubeconfig: Path,
    namespace: str,
    unused: Callable[[], list[tuple[str, str, str]]],
) -> Iterator[SingleConfig]:
    """How an application without trust connects, which has the shipped roles in the namespace."""
    control_plane.kubectl("-n", namespace, "create", "serviceaccount", "istio-integrator")
    roles = rights.roles(namespace)
    control_plane.kubectl("apply", "-f", "-", text=roles)
    made = control_plane.kubectl("-n", namespace, "create", "token", "istio-integrator")
    admin = KubeConfig.from_file(kubeconfig).get()
    assert admin is not None
    yield admin._replace(user=User(token=made.stdout.strip()))
    control_plane.kubectl("delete", "--wait=false", "-f", "-", text=roles)
    assert unused() == []


@pytest.fixture
def untrusted_kubeconfig(kubeconfig: Path, untrusted: SingleConfig, tmp_path: Path) -> Path:
    """Write the kubeconfig of the application without trust."""
    access = yaml.safe_load(kubeconfig.read_text())
    access["users"][0]["user"] = {"token": untrusted.user and untrusted.user.token}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(access))
    return file


@pytest.fixture
def namespace(client: lightkube.Client) -> Iterator[str]:
    """A namespace of the test's own with the account of its pods, deleted after it."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    client.create(Namespace(metadata=ObjectMeta(name=name)))
    # Its controller makes it, too, after a while.
    with contextlib.suppress(lightkube.ApiError):
        client.create(ServiceAccount(metadata=ObjectMeta(name="default", namespace=name)))
    yield name
    client.delete(Namespace, name)


@pytest.fixture(scope="module")
def unreachable_node(client: lightkube.Client) -> Iterator[None]:
    """A node of the name that pods of `pods.pod_json` have, whose kubelet does not answer."""
    client.create(Node(metadata=ObjectMeta(name="node-1")))
    kubelet = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
    }
    client.patch(NodeStatus, "node-1", {"status": kubelet})
    yield
    client.delete(Node, "node-1")
