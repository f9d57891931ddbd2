"""The table of cases on older API servers."""

from __future__ import annotations

import json
import os

import lightkube
import pytest
from lightkube.config.kubeconfig import KubeConfig

from istio_integrator.kube import cluster
from testbed import cluster as testbed_cluster
from testbed import options
from tests.functional import admission_cases as table
from tests.functional import loopback_webhook

# Each builds an apiserver the first time: minutes.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module", params=options.OLDER)
def world(request, tmp_path_factory):
    """Every settings of the table as a webhook of its own, on an older API server."""
    testbed = testbed_cluster.Testbed(f"older-{request.param.replace('.', '-')}-{os.getpid()}")
    testbed.up(testbed_cluster.Options(control_plane_only=True, kubernetes=request.param))
    try:
        answer = json.loads(testbed.kubectl("get", "--raw", "/version").stdout)
        assert answer["gitVersion"].startswith(f"v{request.param}.")
        root = tmp_path_factory.mktemp("webhooks")
        with (
            lightkube.Client(config=KubeConfig.from_file(testbed.kubeconfig).get()) as client,
            loopback_webhook.worlds(cluster.Cluster(client), "older", root) as (world, _),
        ):
            yield world
    finally:
        testbed.down()


@pytest.mark.parametrize("case", table.CASES, ids=lambda case: case.id)
def test_a_pod_gets_what_the_table_says(world, case):
    pod = case.pod(world.namespace(case))
    created = world.try_pod(json.loads(json.dumps(pod)))

    metadata, spec = created["metadata"], created["spec"]
    images = {
        container["name"]: container["image"]
        for container in (*spec.get("initContainers", ()), *spec["containers"])
    }
    sent = (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
    assert metadata.get("labels", {}) == case.all_labels
    assert metadata.get("annotations", {}) == case.all_annotations
    assert images == {**{c["name"]: c["image"] for c in sent}, **case.want_images}
    ordered = case.in_order(pod["spec"]["containers"])
    assert [c["name"] for c in spec["containers"]] == [c["name"] for c in ordered]
