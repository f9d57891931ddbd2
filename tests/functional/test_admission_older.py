"""The table of cases on older API servers."""

import json
import os

import pytest
from lightkube.config.kubeconfig import KubeConfig

from testbed import cluster as testbed_cluster
from testbed import options
from tests.api import Api
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
            Api(KubeConfig.from_file(testbed.kubeconfig).get()) as api,
            loopback_webhook.worlds(api, "older", root) as (world, _),
        ):
            yield world
    finally:
        testbed.down()


@pytest.mark.parametrize("case", table.OBJECTS, ids=lambda case: case.id)
def test_a_pod_gets_what_the_table_says(world, case):
    changed = world.outcome(case.pod(world.namespace(case)))
    assert changed == world.outcome(case.wanted(f"{world.prefix}-plain"))
