"""A real etcd and kube-apiserver for the functional tier, one for the whole run."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import lightkube
import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace

from testbed import cluster


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
def namespace(client: lightkube.Client) -> Iterator[str]:
    """A namespace of the test's own, deleted after it."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    client.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    client.delete(Namespace, name)
