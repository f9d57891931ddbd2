"""What policies and quotas of other teams refuse, on a real kube-apiserver with a real istiod."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from ops import testing

from istio_integrator import messages
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import errors
from tests import waiting
from tests.functional import charm_runs, istiod_world, loopback_istiod
from tests.functional.discovery_world import ALLOWED

ADMISSION = "admissionregistration.k8s.io/v1"
OUR_REGISTRY = "registry.example/"
IMAGES = (
    "(object.spec.containers + object.spec.?initContainers.orValue([]))"
    ".all(c, c.image.startsWith('{}') || c.image.contains('proxyv2'))"
)
NO_OVERRIDES = (
    "!has(object.metadata.annotations) || "
    "!('proxy.istio.io/config' in object.metadata.annotations)"
)


@pytest.fixture(scope="module")
def api(client):
    """The API server, with Istio's kinds."""
    return istiod_world.install_definitions(client)


@pytest.fixture(scope="module", autouse=True)
def istio(api, kubeconfig, tmp_path_factory):
    """An Istio of the default revision."""
    folder = tmp_path_factory.mktemp("default")
    with loopback_istiod.installed(api, kubeconfig, folder) as found:
        yield found


@pytest.fixture
def model(api, namespace, monkeypatch):
    """A model whose unit's own pod runs an image of the company's registry."""
    monkeypatch.setattr(charm_cluster, "connect", lambda: api)
    container = {"name": "charm", "image": f"{OUR_REGISTRY}juju/charm-base:24.04"}
    api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "istio-integrator-0", "namespace": namespace},
            "spec": {"containers": [container], "automountServiceAccountToken": False},
        }
    )
    yield namespace
    charm_runs.run("remove", namespace, units=0)


def policy(name: str, model: str, expression: str, resource: dict) -> list[dict]:
    """Write a ValidatingAdmissionPolicy for one model, and its binding."""
    names = {"matchLabels": {"kubernetes.io/metadata.name": model}}
    rule = {"apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], **resource}
    return [
        {
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"namespaceSelector": names, "resourceRules": [rule]},
                "validations": [
                    {
                        "expression": expression,
                        "message": "this cannot be a resource of ours",
                        "reason": "Forbidden",
                    }
                ],
            },
        },
        {
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


PODS = {"apiGroups": [""], "resources": ["pods"]}


def pod(model: str, image: str, **annotations: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "tried", "namespace": model, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }


@contextlib.contextmanager
def enforced(control_plane, api, objects: list[dict], refused: dict) -> Iterator[None]:
    """Have policies at work, until the API server no longer admits an object that they refuse."""

    def is_at_work() -> bool:
        try:
            api.create(refused, dry_run=True)
        except errors.RefusedError:
            return True
        return False

    for obj in objects:
        control_plane.kubectl("apply", "-f", "-", text=json.dumps(obj))
    try:
        assert waiting.eventually(is_at_work, 30)
        yield
    finally:
        for obj in objects:
            control_plane.kubectl("delete", obj["kind"].lower(), obj["metadata"]["name"])


def is_member(api, model: str) -> bool:
    labels = api.get(charm_cluster.NAMESPACE, model)["metadata"]["labels"]
    return ALLOWED.items() <= labels.items()


def is_refused(out: testing.State, author: str) -> None:
    """See that the status names who refused, and a command, where `juju status` shows it."""
    said = out.unit_status
    assert isinstance(said, testing.BlockedStatus)
    visible = said.message[: messages.VISIBLE]
    assert author in visible
    assert "run: juju run istio-integrator/leader diagnose" in visible or "run: kubectl" in visible
    assert "juju trust" not in said.message


@pytest.mark.parametrize("case", ["registries", "overrides"])
def test_model_joins_under_the_policies_of_a_company(control_plane, api, model, case):
    expression, refused = {
        "registries": (IMAGES.format(OUR_REGISTRY), pod(model, "docker.io/any")),
        "overrides": (NO_OVERRIDES, pod(model, "a", **{"proxy.istio.io/config": "{}"})),
    }[case]
    name = f"{case}-{model}"
    with enforced(control_plane, api, policy(name, model, expression, PODS), refused):
        out = charm_runs.run("start", model)
    assert is_member(api, model), out.unit_status
    assert "does not inject" not in out.unit_status.message


def test_policy_that_refuses_the_dry_run_pod_is_named_and_the_model_stays_outside(
    control_plane, api, model
):
    name = f"other-{model}"
    objects = policy(name, model, IMAGES.format("other/"), PODS)
    with enforced(control_plane, api, objects, pod(model, "docker.io/any")):
        out = charm_runs.run("start", model)
    is_refused(out, name)
    assert "this cannot be a resource of ours" in out.unit_status.message
    assert not is_member(api, model)


def test_quota_that_refuses_the_dry_run_pod_is_named(control_plane, api, model):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": model},
        "spec": {"hard": {"pods": "0"}},
    }
    control_plane.kubectl("apply", "-f", "-", text=json.dumps(quota))

    def is_at_work() -> bool:
        try:
            api.create(pod(model, "a"), dry_run=True)
        except errors.RefusedError as error:
            return error.refusal.author == "ResourceQuota team"
        return False

    assert waiting.eventually(is_at_work, 30)
    is_refused(charm_runs.run("start", model), "ResourceQuota team")
    assert not is_member(api, model)
