"""The ValidatingAdmissionPolicy for routes, Gateways and pods in the namespaces of tenants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from integrator_contract import names
from integrator_contract.seen import Cause
from istio_integrator.asked import gateway
from istio_integrator.component import Component
from istio_integrator.facts import Facts
from istio_integrator.kube import cluster, errors, fences
from istio_integrator.messages import Message, Template

FOLDER = "tenant-policy"
_WORDS = ("notebook", "tensorboard", "pvcviewer", "pvcviewers", "serving", "user")
"""Words with which Kubeflow's controllers begin the paths of a namespace."""
_CHOOSING = (".knative.dev", ".kserve.io")
"""Ends of the API groups whose controllers choose hosts and paths, and copy none from tenants."""
_KINDS = (
    cluster.VIRTUAL_SERVICE,
    cluster.DESTINATION_RULE,
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

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._name = f"istio-integrator.{facts.situation.manifests.owner}.tenants".lower()

    def reconcile(self) -> list[Message]:
        """Apply the policy while the model has ingress, and report the objects that violate it."""
        situation, mode = self._situation, self._situation.config.tenant_policy
        if not situation.leader or self._facts.mesh is None:
            return []
        if mode == "off" or not situation.is_exposed:
            self.remove()
        elif isinstance(target := self._facts.gateway_target, gateway.Target):
            try:
                situation.manifests.apply(FOLDER, self._make_variables(target))
            except errors.KindAbsentError:
                if mode == "auto":
                    return [Template.TENANT_POLICY_OFF()]
                return [
                    Template.TENANT_POLICY_UNKNOWN(mode=mode, application=situation.application)
                ]
            said = Template.TENANT_WARNED if mode == "warn" else Template.TENANT_REJECTED
            return [_make_message(said, *each) for each in self._find_violations()]
        return []

    def remove(self) -> None:
        """Delete the policy."""
        self._situation.manifests.remove(FOLDER)

    def _make_variables(self, target: gateway.Target) -> dict[str, Any]:
        pods = self._situation.cluster.list(cluster.POD, target.namespace, dict(target.selector))
        found = (_format_labels(cluster.at(pod, "metadata", "labels")) for pod in pods)
        selector = _format_labels(target.selector)
        paths = [route.path for route in self._facts.route_plan.routes if route.path != "/"]
        return {
            "name": self._name,
            "model": self._situation.model,
            "is_warning": self._situation.config.tenant_policy == "warn",
            "served": self._facts.served,
            "hosts": target.hosts,
            "words": [
                word
                for word in _WORDS
                if not any(_do_paths_overlap(f"/{word}/", each) for each in paths)
            ],
            "selector": sorted(selector),
            # Labels are written as `key=value`.
            "labels": sorted(selector.union(*found)),
            "service": f"{target.service}.{target.namespace}",
        }

    def _find_violations(self) -> Iterator[tuple[cluster.Object, str]]:
        """Find existing objects that the policy rejects, each with the words of the rule."""
        served = {*self._facts.served_namespaces} - {self._situation.model}
        missing = () if served else getattr(self._facts.envoy_state, "missing", ())
        # Without tenants only another team can have stopped the updates.
        is_needed = served or any(each.cause is Cause.ROUTES_MISSING for each in missing)
        every = (
            obj for kind in _KINDS if is_needed for obj in self._situation.cluster.stream(kind)
        )
        levels = ((obj, self._find_strictness(obj, served)) for obj in every)
        judged = ((obj, level) for obj, level in levels if level is not None)
        for number, (obj, level) in enumerate(judged):
            reference = cluster.reference(obj)
            if number == _MOST_TRIED:
                fences.note_skipped(
                    reference, f"it and others: tenants have more than {_MOST_TRIED}"
                )
                return
            with fences.isolate(reference):
                if words := self._test_object(obj, level):
                    yield obj, words

    def _find_strictness(self, obj: cluster.Object, served: set[str]) -> int | None:
        """Return how strictly the policy judges the author of an object; None: not at all."""
        metadata, spec = obj["metadata"], cluster.at(obj, "spec")
        if metadata["namespace"] not in served:
            # Envoy refuses the model's routes for a route of any team on the model's Gateway.
            is_near = gateway.NAME in str((spec.get("gateways"), spec.get("parentRefs")))
            return 0 if is_near and not self._situation.manifests.is_ours(obj) else None
        for owner in cluster.parts(metadata, "ownerReferences"):
            if owner.get("controller"):
                group = str(owner.get("apiVersion")).partition("/")[0]
                return 1 if group.endswith(_CHOOSING) else 2
        return 3

    def _test_object(self, obj: cluster.Object, level: int) -> str:
        """Test a copy by a dry run in the model, where the charm may create such objects."""
        labels = {names.TENANT: obj["metadata"]["namespace"], names.TENANT_LEVEL: str(level)}
        metadata: dict[str, Any] = {
            "generateName": f"{FOLDER}-",
            "namespace": self._situation.model,
            "labels": labels,
            "annotations": cluster.at(obj, "metadata", "annotations"),
        }
        copy = {key: obj.get(key) for key in ("apiVersion", "kind", "spec")}
        try:
            self._situation.cluster.create({**copy, "metadata": metadata}, dry_run=True)
        except errors.RefusedError as error:
            # The API server calls validating webhooks of other teams after its policies.
            is_ours = error.refusal.author.endswith(f" {self._name}")
            return error.refusal.words if is_ours else ""
        except errors.InvalidError:
            pass
        return ""


def _do_paths_overlap(word: str, path: str) -> bool:
    return word.startswith(path) or path.startswith(word)


def _format_labels(labels: Mapping[str, Any]) -> set[str]:
    return {f"{key}={value}" for key, value in labels.items()}


def _make_message(said: Template, obj: cluster.Object, words: str) -> Message:
    kind = cluster.KINDS[obj["apiVersion"], obj["kind"]]
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    resource = f"{kind.plural}.{kind.api_version.rpartition('/')[0]}"
    command = f"kubectl -n {namespace} delete {resource} {name}"
    return said(object=cluster.reference(obj), command=command, words=words)
