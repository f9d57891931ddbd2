"""What the charm does to a real API server."""

import contextlib
import copy
import dataclasses
import uuid
from collections.abc import Iterator

import lightkube
import pytest
from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import User

from istio_integrator import parts
from istio_integrator.config import config
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import errors, manifests, templates
from istio_integrator.membership import model_namespace
from istio_integrator.mesh import discovery, installation

TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  text: {{ text | tojson }}
{% if extra %}
  extra: {{ extra | tojson }}
{% endif %}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: server
spec:
  selector: {matchLabels: {app: server}}
  template:
    metadata: {labels: {app: server}}
    spec:
      containers:
      - name: server
        image: {{ text | tojson }}
        resources: {limits: {cpu: 1000m, memory: 64Mi}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ role | tojson }}
rules: []
"""


@dataclasses.dataclass(frozen=True)
class Values:
    text: str = "hello"
    extra: str = ""
    role: str = "one"


@pytest.fixture
def api(client: lightkube.Client) -> charm_cluster.Cluster:
    return charm_cluster.Cluster(client)


@pytest.fixture
def own(api, namespace, tmp_path, monkeypatch) -> Iterator[manifests.Manifests]:
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "all.yaml.j2").write_text(TEMPLATE)
    monkeypatch.setattr(manifests, "TEMPLATES", tmp_path)
    templates.environment.cache_clear()
    made = manifests.Manifests(api, model=namespace, application="app")
    yield made
    made.remove("thing")
    templates.environment.cache_clear()


@pytest.fixture
def values(namespace: str) -> Values:
    return Values(role=f"{namespace}-role")


def test_apply_twice_writes_once(api, own, values, monkeypatch):
    own.apply("thing", values)
    written: list[str] = []
    monkeypatch.setattr(api, "apply", lambda obj: written.append(obj["kind"]))
    own.apply("thing", values)
    # 1000m of CPU comes back as 1: what looks different is applied again, and changes nothing.
    assert written == ["Deployment"]


def test_apply_repairs_its_own_fields_and_keeps_those_of_others(api, own, values, namespace):
    settings = own.apply("thing", dataclasses.replace(values, extra="x"))[0]
    drift = {"data": {"text": "drifted", "theirs": "1"}, "metadata": {"labels": {"team": "a"}}}
    api.merge_patch(settings, drift)
    own.apply("thing", values)
    settings = api.get(charm_cluster.CONFIG_MAP, "settings", namespace)
    assert settings["data"] == {"text": "hello", "theirs": "1"}
    assert settings["metadata"]["labels"]["team"] == "a"


def test_apply_prunes_and_remove_leaves_nothing(api, own, values, namespace):
    role = charm_cluster.kind("rbac.authorization.k8s.io/v1", "ClusterRole")
    own.apply("thing", values)
    other = dataclasses.replace(values, role=f"{namespace}-other")
    own.apply("thing", other)
    assert api.get(role, values.role) is None
    assert api.get(role, other.role)
    assert len(own.owned()) == 3
    own.remove("thing")
    own.remove("thing")
    assert own.owned() == []


def test_kind_that_is_not_served_is_nothing(api):
    version = "admissionregistration.k8s.io/v1beta1"
    policy = charm_cluster.kind(version, "MutatingAdmissionPolicy")
    assert api.list(policy) == []
    assert api.get(policy, "x") is None
    obj = {"apiVersion": version, "kind": policy.name, "metadata": {"name": "x"}}
    api.delete(obj)
    with pytest.raises(errors.KindAbsentError):
        api.apply(obj)


def scope(api, namespace, found) -> parts.Context:
    return parts.Context(
        cluster=api,
        manifests=manifests.Manifests(api, model=namespace, application="app"),
        config=config.Config(),
        mesh=found,
        model=namespace,
        application="app",
        unit="app/0",
        leader=True,
    )


ALIVE = installation.Mesh(
    namespace="istio-system", revision="default", is_default=True, alive=True
)
CANARY = dataclasses.replace(ALIVE, revision="canary", is_default=False)


def labels_of(api, namespace) -> dict[str, str]:
    return api.get(charm_cluster.NAMESPACE, namespace)["metadata"]["labels"]


def test_membership_comes_and_goes_without_a_trace(api, namespace):
    before = _essence(api, namespace)
    model_namespace.Membership(scope(api, namespace, ALIVE)).reconcile()
    assert labels_of(api, namespace)["istio-injection"] == "enabled"
    model_namespace.Membership(scope(api, namespace, CANARY)).reconcile()
    assert labels_of(api, namespace)["istio.io/rev"] == "canary"
    assert "istio-injection" not in labels_of(api, namespace)
    model_namespace.Membership(scope(api, namespace, None)).remove()
    assert _essence(api, namespace) == before


def _essence(api, namespace):
    metadata = copy.deepcopy(api.get(charm_cluster.NAMESPACE, namespace)["metadata"])
    for key in ("resourceVersion", "managedFields"):
        metadata.pop(key, None)
    return metadata


def test_membership_sees_that_somebody_wrote_in_between(api, namespace):
    found = api.get(charm_cluster.NAMESPACE, namespace)
    api.merge_patch(found, {"metadata": {"labels": {"team": "a"}}})
    stale = model_namespace.Membership(scope(api, namespace, ALIVE))
    with pytest.raises(errors.ConflictError):
        stale._patch(found, {"istio-injection": "enabled"}, None)


def service_account(control_plane, namespace: str, name: str) -> str:
    control_plane.kubectl("-n", namespace, "create", "serviceaccount", name)
    made = control_plane.kubectl("-n", namespace, "create", "token", name)
    return str(getattr(made, "stdout", made)).strip()


def test_missing_rights_are_told_apart_from_other_refusals(control_plane, kubeconfig, namespace):
    token = service_account(control_plane, namespace, "app")
    admin = KubeConfig.from_file(kubeconfig).get()
    restricted = admin._replace(user=User(token=token))
    with lightkube.Client(config=restricted) as client:
        api = charm_cluster.Cluster(client)
        with pytest.raises(errors.ForbiddenError, match=r'cannot list resource "mutatingwebhook'):
            api.list(charm_cluster.MUTATING_WEBHOOK)


def test_refusal_by_a_limit_range_is_not_a_missing_right(api, namespace, monkeypatch):
    kind = charm_cluster.Kind("v1", "LimitRange", "limitranges", namespaced=True)
    monkeypatch.setitem(charm_cluster.KINDS, ("v1", "LimitRange"), kind)
    _default_account(api, namespace)
    api.create(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "least", "namespace": namespace},
            "spec": {"limits": [{"type": "Container", "min": {"cpu": "1"}}]},
        }
    )
    discovery = discover(api, namespace, injector(namespace, failure_policy="Ignore"))
    assert discovery.mesh.alive is False
    assert "minimum cpu usage" in discovery.mesh.problem


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
