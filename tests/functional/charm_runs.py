"""Run the charm for one event, with a workload that has nothing to say."""

import contextlib
import pathlib
from collections.abc import Iterable, Iterator

from ops import testing

import charm
from integrator_contract import names
from testbed import kubernetes
from tests import admission_policies, asked, waiting
from tests.api import Api
from tests.kubernetes_objects import made, pod, workload

APPLICATION = "istio-integrator"
WEBHOOK = f"{APPLICATION}-admission"
"""The name of the webhook's objects in the model."""
IGNORED_KINDS = {"Pod", "Event", "Lease", "EndpointSlice", "Endpoints", "Node", "ComponentStatus"}


def run(
    event: str,
    model: str,
    *,
    units: int = 1,
    relations: Iterable[testing.Relation] = (),
    secrets: Iterable[testing.Secret] = (),
    root: pathlib.Path | None = None,
    **options: str,
) -> testing.State:
    asked.SERVICE.says()
    container = testing.Container("lifecycle", can_connect=True, execs={asked.version()})
    given = testing.State(
        leader=True,
        planned_units=units,
        containers={container},
        relations=[*relations],
        secrets=[*secrets],
        config=dict(options),
        model=testing.Model(model, type="kubernetes"),
    )
    ctx = testing.Context(charm.IstioIntegrator, charm_root=root)
    return ctx.run(getattr(ctx.on, event)(), given)


def serve(api: Api, event: str, model: str, **options: str) -> testing.State:
    """Run the charm for an event, and once more when its webhook's pods are ready."""
    run(event, model, **options)
    assert waiting.eventually(lambda: _is_ready(api, model))
    return run("update_status", model, **options)


def _is_ready(api: Api, model: str) -> bool:
    """Write what a kubelet says of the webhook's pods, until their Deployment shows it."""
    for each in api.list("Pod", model, f"{names.COMPONENT}={names.WEBHOOK_COMPONENT}"):
        api.patch_status(each, {"conditions": [{"type": "Ready", "status": "True"}]})
    deployment = api.get("Deployment", WEBHOOK, model)
    if deployment is None:
        return True
    return deployment["status"].get("readyReplicas") == deployment["spec"]["replicas"]


@contextlib.contextmanager
def webhooks(api: Api) -> Iterator[None]:
    """Mark each charm's dry-run pod as its webhook would, which no kubelet runs here."""
    revision = """params.data["settings.json"].split('"digest": "')[1].split('"')[0]"""
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    policy, binding = admission_policies.mutating(
        "in-place-of-webhooks",
        f"""[JSONPatch{{op: "add", path: "/metadata/annotations",
            value: {{"{names.SETTINGS}": {revision}}}}}]""",
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        matchConstraints={
            "objectSelector": {"matchLabels": {names.PROBE: "true"}},
            "resourceRules": [{**pods, "operations": ["CREATE"]}],
        },
    )
    # The ConfigMap is looked for in the pod's namespace.
    binding["spec"]["paramRef"] = {"name": WEBHOOK, "parameterNotFoundAction": "Allow"}
    for obj in (policy, binding):
        api.apply(obj)
    yield
    for obj in (policy, binding):
        api.delete(obj)


def deploy(api: Api, model: str, application: str = APPLICATION) -> None:
    """Create the objects by which an application of Juju is recognised, and its unit's pod."""
    for obj in _of_juju(model, application):
        api.create(obj)


def delete(api: Api, model: str, application: str = APPLICATION) -> None:
    """Delete them, as Juju does once an application is removed."""
    for obj in _of_juju(model, application):
        api.delete(obj)


def _of_juju(model: str, application: str) -> Iterator[kubernetes.Object]:
    name = {"app.kubernetes.io/name": application}
    metadata = {"labels": {**name, "app.kubernetes.io/managed-by": "juju"}}
    yield workload("StatefulSet", application, model, name, metadata)
    kind = "rbac.authorization.k8s.io/v1", "ClusterRole"
    yield made(*kind, f"{model}-{application}", rules=[], metadata=metadata)
    yield unit(model, application)


def unit(model: str, application: str = APPLICATION) -> kubernetes.Object:
    """The pod of its unit, without the labels by which its StatefulSet would delete it."""
    containers = [{"name": "lifecycle", "image": "workload:1"}]
    return pod(f"{application}-0", model, containers=containers)


def owned(api: Api, model: str, *wanted: str) -> list[kubernetes.Object]:
    """List the application's objects of some kinds, or all but the ReplicaSets of Deployments."""
    owner = f"{names.OWNER}={names.name_owner(model, APPLICATION)}"
    found = [each for kind in wanted or kinds(api) for each in api.list(kind, labels=owner)]
    return [each for each in found if each["kind"] != "ReplicaSet"]


def kinds(api: Api) -> list[str]:
    """Name the kinds that the API server stores and that it and controllers do not write."""
    served = [each for each in api.resources(refresh=True) if "list" in each.verbs]
    return [f"{each.kind}.{each.group}" for each in served if each.kind not in IGNORED_KINDS]


def mesh_labels(api: Api, namespace: str) -> tuple[dict[str, str], bool]:
    """Return the labels of a namespace that Istio goes by, and whether the charm remembers it."""
    found = api.get("Namespace", namespace)
    assert found
    metadata = found["metadata"]
    keys = (names.INJECTION, names.REVISION, names.DATAPLANE_MODE)
    labels = {key: metadata["labels"][key] for key in keys if key in metadata["labels"]}
    return labels, names.MEMBERSHIP in metadata.get("annotations", {})
