"""Run the charm for one event, with a workload that has nothing to say."""

import contextlib
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

from ops import testing

import charm
from integrator_contract import names
from istio_integrator.admission import admission
from istio_integrator.config import config
from istio_integrator.istio import discovery
from istio_integrator.kube import cluster, manifests
from istio_integrator.lifecycle import service
from tests import asked
from tests.kubernetes_objects import made, workload


def run(
    event: str,
    model: str,
    *,
    units: int = 1,
    relations: Iterable[testing.Relation] = (),
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
        config=dict(options),
        model=testing.Model(model, type="kubernetes"),
    )
    ctx = testing.Context(charm.IstioIntegrator, charm_root=root)
    with _webhook():
        return ctx.run(getattr(ctx.on, event)(), given)


_apply = manifests.Manifests.apply


def _apply_ready(self: manifests.Manifests, *given: Any) -> list[cluster.Object]:
    live = _apply(self, *given)
    for obj in live:
        if obj["kind"] == "Deployment":
            obj.setdefault("status", {})["readyReplicas"] = 1
    return live


@contextlib.contextmanager
def _webhook() -> Iterator[None]:
    """Stand in for the webhook's pods, which no kubelet runs here."""
    with (
        mock.patch.object(service.WorkloadService, "image", return_value="workload:1"),
        mock.patch.object(manifests.Manifests, "apply", _apply_ready),
        mock.patch.object(admission.Admission, "_trial", return_value=None),
    ):
        yield


def deploy(api: cluster.Cluster, model: str, application: str = "istio-integrator") -> None:
    """Have the objects by which Juju's applications are known, without pods."""
    for obj in _of_juju(model, application):
        api.create(obj)


def delete(api: cluster.Cluster, model: str, application: str = "istio-integrator") -> None:
    """Delete them, as Juju does once an application is removed."""
    for obj in _of_juju(model, application):
        api.delete(obj)


def _of_juju(model: str, application: str) -> Iterator[cluster.Object]:
    name = {"app.kubernetes.io/name": application}
    metadata = {"labels": {**name, "app.kubernetes.io/managed-by": "juju"}}
    yield workload("StatefulSet", application, model, name, metadata)
    kind = "rbac.authorization.k8s.io/v1", "ClusterRole"
    yield made(*kind, f"{model}-{application}", rules=[], metadata=metadata)


def discover(api: cluster.Cluster, model: str, **options: str) -> discovery.Discovery:
    """Look for an Istio as the charm does."""
    wish = config.Config.model_validate(options)
    search = discovery.Discovery(api, wish, model=model, application="istio-integrator")
    search.reconcile()
    return search


def mesh_labels(api: cluster.Cluster, namespace: str) -> tuple[dict[str, str], bool]:
    """Return the labels of a namespace that Istio goes by, and whether the charm remembers it."""
    metadata = api.get(cluster.NAMESPACE, namespace)["metadata"]
    keys = (names.INJECTION, names.REVISION, names.DATAPLANE_MODE)
    labels = {key: metadata["labels"][key] for key in keys if key in metadata["labels"]}
    return labels, names.MEMBERSHIP in metadata.get("annotations", {})
