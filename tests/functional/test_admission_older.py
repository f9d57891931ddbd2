"""The table of cases on the API servers before the policy was stable, which serve it as beta."""

from __future__ import annotations

import json
import os

import lightkube
import ops
import pytest
from lightkube.config.kubeconfig import KubeConfig

from istio_integrator import parts
from istio_integrator.admission import admission, policy
from istio_integrator.config import config
from istio_integrator.kube import cluster, manifests
from testbed import cluster as testbed_cluster
from testbed import options
from tests.functional import admission_cases as table
from tests.functional import admission_world

# Each builds an apiserver the first time: minutes.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

POLICY = cluster.kind("admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicy")


@pytest.fixture(scope="module", params=options.OLDER)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def api(version):
    """An older API server with the beta switched on."""
    testbed = testbed_cluster.Testbed(f"older-{version.replace('.', '-')}-{os.getpid()}")
    testbed.up(testbed_cluster.Options(control_plane_only=True, kubernetes=version))
    try:
        answer = json.loads(testbed.kubectl("get", "--raw", "/version").stdout)
        assert answer["gitVersion"].startswith(f"v{version}.")
        with lightkube.Client(config=KubeConfig.from_file(testbed.kubeconfig).get()) as client:
            yield cluster.Cluster(client)
    finally:
        testbed.down()


@pytest.fixture(scope="module")
def world(api):
    """Every settings of the table as a policy of its own."""
    with admission_world.by_policy(api, "beta", version="v1beta1") as world:
        yield world


@pytest.mark.parametrize("case", table.CASES, ids=lambda case: case.id)
def test_a_pod_gets_what_the_table_says(version, world, case):
    if version == "1.34" and "duplicate names" in case.id:
        # Its policies leave such pods alone, and so the charm does not choose them.
        pod = case.pod(world.namespace(case))
        assert "annotations" not in world.try_pod(pod)["metadata"]
        return
    admission_world.assert_case(world, case)


def test_the_charm_chooses_the_beta_if_it_changes_every_pod(version, api):
    model = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}}
    api.create(model)
    scope = parts.Context(
        cluster=api,
        manifests=manifests.Manifests(api, model="kubeflow", application="istio-integrator"),
        config=config.Config(),
        mesh=None,
        model="kubeflow",
        application="istio-integrator",
        unit="istio-integrator/0",
        leader=True,
    )
    choice = admission.Admission(scope, lambda: "registry.example/lifecycle:1")

    choice.reconcile()

    want = {
        "1.34": ops.WaitingStatus("admission: the webhook's pods are starting"),
        "1.35": ops.ActiveStatus("policy"),
    }
    assert list(choice.statuses()) == [want[version]]
    assert api.get(POLICY, policy.name("kubeflow.istio-integrator")) is not None
    choice.remove()
    assert api.get(POLICY, policy.name("kubeflow.istio-integrator")) is None
