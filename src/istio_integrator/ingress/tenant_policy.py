"""The ValidatingAdmissionPolicy for routes, Gateways and pods in the namespaces of tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from integrator_contract import names
from istio_integrator.ingress import gateway
from istio_integrator.kube import cluster, errors, fences
from istio_integrator.messages import Message, Said
from istio_integrator.situation.situation import Component, Situation

FOLDER = "tenant-policy"
_KINDS = (
    cluster.VIRTUAL_SERVICE,
    cluster.GATEWAY,
    cluster.HTTP_ROUTE,
    cluster.GRPC_ROUTE,
    cluster.KUBERNETES_GATEWAY,
)
_MOST_TRIED = 200
"""Existing objects that one hook tests, each by a request to the API server."""


class TenantPolicy(Component):
    """Applies the policy for the resolved gateway, and names existing objects that violate it."""

    name = "ingress"

    def __init__(
        self, situation: Situation, resolve: Callable[[], gateway.Target | Message]
    ) -> None:
        self._situation = situation
        self._resolve = resolve
        self._name = f"istio-integrator.{situation.manifests.owner}.tenants".lower()

    def reconcile(self) -> list[Message]:
        """Apply the policy while the model has ingress, and report the objects that violate it."""
        situation, mode = self._situation, self._situation.config.tenant_policy
        if not situation.leader or situation.mesh is None:
            return []
        if mode == "off" or not situation.exposes:
            self.remove()
        elif isinstance(target := self._resolve(), gateway.Target):
            try:
                situation.manifests.apply(FOLDER, self._context(target))
            except errors.KindAbsentError:
                if mode == "auto":
                    return [Said.TENANT_POLICY_OFF()]
                return [Said.TENANT_POLICY_UNKNOWN(mode=mode, application=situation.application)]
            said = Said.TENANT_WARNED if mode == "warn" else Said.TENANT_REJECTED
            return [_message(said, each) for each in self._rejected()]
        return []

    def remove(self) -> None:
        """Delete the policy."""
        self._situation.manifests.remove(FOLDER)

    def _context(self, target: gateway.Target) -> dict[str, Any]:
        pods = self._situation.cluster.list(cluster.POD, target.namespace, dict(target.selector))
        found = (_pairs(cluster.at(pod, "metadata", "labels")) for pod in pods)
        selector = _pairs(target.selector)
        return {
            "name": self._name,
            "model": self._situation.model,
            "is_warning": self._situation.config.tenant_policy == "warn",
            "served": self._situation.served,
            "hosts": target.hosts,
            "selector": sorted(selector),
            # Labels are written as `key=value`.
            "labels": sorted(selector.union(*found)),
            "service": f"{target.service}.{target.namespace}",
        }

    def _rejected(self) -> Iterator[cluster.Object]:
        served = {*self._situation.served_namespaces} - {self._situation.model}
        every = (obj for kind in _KINDS if served for obj in self._situation.cluster.each(kind))
        written = (obj for obj in every if _is_written_in(obj, served))
        for number, obj in enumerate(written):
            reference = cluster.reference(obj)
            if number == _MOST_TRIED:
                fences.note(reference, f"it and others: tenants have more than {_MOST_TRIED}")
                return
            with fences.around(reference):
                if self._is_rejected(obj):
                    yield obj

    def _is_rejected(self, obj: cluster.Object) -> bool:
        """Test a copy by a dry run in the model, where the charm may create such objects."""
        metadata: dict[str, Any] = {
            "generateName": f"{FOLDER}-",
            "namespace": self._situation.model,
            "labels": {names.TENANT: obj["metadata"]["namespace"]},
            "annotations": cluster.at(obj, "metadata", "annotations"),
        }
        copy = {key: obj.get(key) for key in ("apiVersion", "kind", "spec")}
        try:
            self._situation.cluster.create({**copy, "metadata": metadata}, dry_run=True)
        except errors.RefusedError as error:
            # The API server calls validating webhooks of other teams after its policies.
            return error.refusal.author.endswith(f" {self._name}")
        except errors.InvalidError:
            return False
        return False


def _is_written_in(obj: cluster.Object, namespaces: set[str]) -> bool:
    """Tell whether an object is in the namespaces and has no controller as its owner.

    The policy exempts requests of controllers.
    """
    metadata = obj["metadata"]
    is_owned = any(each.get("controller") for each in cluster.parts(metadata, "ownerReferences"))
    return metadata["namespace"] in namespaces and not is_owned


def _pairs(labels: Mapping[str, Any]) -> set[str]:
    return {f"{key}={value}" for key, value in labels.items()}


def _message(said: Said, obj: cluster.Object) -> Message:
    kind = cluster.KINDS[obj["apiVersion"], obj["kind"]]
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    resource = f"{kind.plural}.{kind.api_version.rpartition('/')[0]}"
    command = f"kubectl -n {namespace} delete {resource} {name}"
    return said(object=cluster.reference(obj), command=command)
