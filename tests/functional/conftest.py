"""A real etcd and kube-apiserver for the functional tier, one for the whole run."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import lightkube
import pytest
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace

from testbed import cluster
from tests.functional import charm_runs


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


@pytest.fixture
def untrusted(
    control_plane: cluster.Testbed, kubeconfig: Path, namespace: str
) -> Iterator[SingleConfig]:
    """How an application without trust connects, which has the shipped roles in the namespace."""
    control_plane.kubectl("-n", namespace, "create", "serviceaccount", "istio-integrator")
    roles = charm_runs.ROLES.read_text().replace("kubeflow", namespace)
    control_plane.kubectl("apply", "-f", "-", text=roles)
    made = control_plane.kubectl("-n", namespace, "create", "token", "istio-integrator")
    admin = KubeConfig.from_file(kubeconfig).get()
    assert admin is not None
    yield admin._replace(user=User(token=made.stdout.strip()))
    control_plane.kubectl("delete", "-f", "-", text=roles)


@pytest.fixture
def namespace(client: lightkube.Client) -> Iterator[str]:
    """A namespace of the test's own, deleted after it."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    client.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    client.delete(Namespace, name)
