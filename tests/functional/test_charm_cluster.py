"""Why a real API server refuses the charm, as the charm tells it."""

import contextlib
import uuid

import lightkube
import pytest

from istio_integrator.config import config
from istio_integrator.istio import discovery
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import errors


@pytest.fixture
def api(client: lightkube.Client) -> charm_cluster.Cluster:
    return charm_cluster.Cluster(client)


def test_probe_of_an_injector_without_istiod_says_why(api, namespace):
    _default_account(api, namespace)
    discovery = discover(api, namespace, injector(namespace))
    assert discovery.mesh.alive is False
    assert discovery.mesh.problem.endswith(
        'object.sidecar-injector.istio.io: service "istiod" not found'
    )
    assert api.list(charm_cluster.POD, namespace=namespace) == []


@pytest.mark.parametrize("level", ["restricted", "baseline"])
def test_probe_is_no_reason_for_a_pod_security_standard_to_refuse(api, namespace, level):
    _default_account(api, namespace)
    found = api.get(charm_cluster.NAMESPACE, namespace)
    enforce = {"pod-security.kubernetes.io/enforce": level}
    api.merge_patch(found, {"metadata": {"labels": enforce}})
    discovery = discover(api, namespace, injector(namespace, failure_policy="Ignore"))
    assert discovery.mesh.problem.endswith("the injector was not asked for the pod")


def discover(api, namespace, configuration) -> discovery.Discovery:
    created = api.create(configuration)
    try:
        search = discovery.Discovery(
            api,
            config.Config(istiod_namespace=f"istio-{namespace}"),
            model=namespace,
            application="app",
        )
        search.reconcile()
        return search
    finally:
        api.delete(created)


def injector(namespace, *, failure_policy="Fail"):
    """An injector as Istio's charts render it, for this namespace alone, without an istiod."""
    marker = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": f"istio-sidecar-injector-{uuid.uuid4().hex[:6]}"},
        "webhooks": [
            {
                "name": f"{prefix}sidecar-injector.istio.io",
                "clientConfig": {
                    "service": {"name": "istiod", "namespace": f"istio-{namespace}"},
                },
                "namespaceSelector": {"matchExpressions": [*selector, marker]},
                "objectSelector": pods,
                "failurePolicy": failure_policy,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "rules": [
                    {
                        "operations": ["CREATE"],
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                    }
                ],
            }
            for prefix, selector, pods in (
                (
                    "namespace.",
                    [{"key": "istio-injection", "operator": "In", "values": ["enabled"]}],
                    {},
                ),
                ("object.", [], {"matchLabels": {"sidecar.istio.io/inject": "true"}}),
            )
        ],
    }


def _default_account(api, namespace) -> None:
    """Make the account that every pod needs, where no controller manager did."""
    metadata = {"name": "default", "namespace": namespace}
    with contextlib.suppress(errors.ConflictError):
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
