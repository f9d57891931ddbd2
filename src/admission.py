"""What new pods get, by a policy where the API server has them, else by a webhook."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import ops

import cluster
import component
import errors
import injectors
import labels
import podrules
import probe
import webhook

logger = logging.getLogger(__name__)

POLICY_FOLDER = "admission-policy"
PROBE_LABEL = "istio-integrator.charmhub.io/probe"
SETTINGS_ANNOTATION = "istio-integrator.charmhub.io/settings"
LIFECYCLE_LABEL = "istio-integrator.charmhub.io/lifecycle"

PROBE_DELAYS = (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)
"""Seconds between two probes after a change, which API servers take a moment to notice."""
PROBE_SECONDS = 5.0
"""After which no further probe is sent; each may itself take the webhook's 3 s."""

Namespaces = tuple[tuple[str, tuple[dict[str, Any], ...]], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wishes:
    """What new pods get."""

    model: str
    application: str
    membership: str
    lifecycle_in_model: bool
    """Whether pods of the model get more than their place in or outside of the mesh."""
    included_pods: str
    excluded_pods: str
    inject_label: tuple[str, str]
    hold_application: bool
    native: bool
    rules: podrules.PodRules

    @classmethod
    def of(cls, scope: component.Scope, *, lifecycle_in_model: bool) -> Wishes:
        """Gather them from options and mesh."""
        options = scope.config
        inject = scope.mesh.pod_labels if scope.mesh else {injectors.INJECT_LABEL: "true"}
        return cls(
            model=scope.model,
            application=scope.application,
            membership=options.mesh_membership,
            lifecycle_in_model=lifecycle_in_model,
            included_pods=options.included_pods if options.mesh_membership == "selected" else "",
            excluded_pods=options.excluded_pods,
            inject_label=next(iter(inject.items())),
            hold_application=options.hold_application,
            native=scope.mesh.native_sidecars if scope.mesh else False,
            rules=options.pod_rules,
        )

    def settings(self) -> dict[str, Any]:
        """Write them as the workload reads them; `revision` names all the others."""
        rules = self.rules
        values = {
            "model": self.model,
            "application": self.application,
            "membership": self.membership,
            "lifecycle-in-model": self.lifecycle_in_model,
            "included-pods": self.included_pods,
            "excluded-pods": self.excluded_pods,
            "inject-label": dict([self.inject_label]),
            "hold-application": self.hold_application,
            "native": self.native,
            "pod-labels": [rule.as_setting() for rule in rules.labels],
            "pod-annotations": [rule.as_setting() for rule in rules.annotations],
            "excluded-outbound-ports": [
                rule.as_setting() for rule in rules.excluded_outbound_ports
            ],
            "image-registries": [rule.as_setting() for rule in rules.image_registries],
        }
        text = json.dumps(values, sort_keys=True)
        return {**values, "revision": hashlib.sha256(text.encode()).hexdigest()[:16]}

    @property
    def changes_lifecycle(self) -> bool:
        """Whether anything happens to pods outside of the model."""
        return self.hold_application or self.native or self.rules != podrules.PodRules()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyContext:
    """The variables of the templates in admission-policy."""

    version: str
    """Of the policy API: `v1` or `v1beta1`."""
    name: str
    model: str
    application: str
    revision: str
    lifecycle_in_model: bool
    included_pods: tuple[labels.Requirement, ...]
    excluded_pods: tuple[labels.Requirement, ...]
    inject_label: tuple[str, str]
    hold_application: bool
    native: bool
    pod_labels: tuple[podrules.Entries, ...]
    pod_labels_keys: tuple[str, ...]
    pod_annotations: tuple[podrules.Entries, ...]
    pod_annotations_keys: tuple[str, ...]
    excluded_outbound_ports: tuple[podrules.Ports, ...]
    image_registries: tuple[podrules.Registries, ...]
    namespace_selectors: Namespaces


def policy_context(
    wishes: Wishes, namespaces: Namespaces, *, owner: str, version: str = "v1"
) -> PolicyContext:
    """Put wishes into the words of the policy's templates."""
    rules = wishes.rules
    return PolicyContext(
        version=version,
        name=f"istio-integrator.{owner}".lower(),
        model=wishes.model,
        application=wishes.application,
        revision=wishes.settings()["revision"],
        lifecycle_in_model=wishes.lifecycle_in_model,
        included_pods=labels.parse(wishes.included_pods),
        excluded_pods=labels.parse(wishes.excluded_pods),
        inject_label=wishes.inject_label,
        hold_application=wishes.hold_application,
        native=wishes.native,
        pod_labels=rules.labels,
        pod_labels_keys=_keys(rules.labels),
        pod_annotations=rules.annotations,
        pod_annotations_keys=_keys(rules.annotations),
        excluded_outbound_ports=rules.excluded_outbound_ports,
        image_registries=rules.image_registries,
        namespace_selectors=namespaces,
    )


def _keys(rules: Iterable[podrules.Entries]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for rule in rules for key, _ in rule.add))


def namespace_selectors(
    model: str, groups: Iterable[str], *, istiod_namespace: str = ""
) -> Namespaces:
    """Write the selector of each kind of namespace; no namespace has two of them.

    Args:
        model: Always served: its pods' place in the mesh is decided here.
        groups: The kinds to serve, as the option `lifecycle-namespaces` names them.
        istiod_namespace: Never served.
    """
    name = "kubernetes.io/metadata.name"
    never = sorted({model, "kube-system", istiod_namespace} - {""})
    elsewhere = (
        _expression(name, "NotIn", *never),
        _expression("controller.juju.is/id", "DoesNotExist"),
    )
    labelled = ("enabled",) if "labelled" in groups else ()
    profiles = (
        _expression("app.kubernetes.io/part-of", "In", "kubeflow-profile"),
        _expression(LIFECYCLE_LABEL, "NotIn", "disabled", *labelled),
    )
    kinds = {
        "profiles": (*profiles, *elsewhere),
        "labelled": (_expression(LIFECYCLE_LABEL, "In", "enabled"), *elsewhere),
    }
    chosen = tuple((kind, kinds[kind]) for kind in kinds if kind in groups)
    return (("model", (_expression(name, "In", model),)), *chosen)


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return labels.Requirement(key, operator, values).as_expression()


@dataclasses.dataclass(frozen=True)
class Trial:
    """What became of a dry-run pod that one backend should have changed."""

    works: bool
    problem: str = ""


class Admission:
    """Keeps one backend at work, and none where it is not wanted."""

    def __init__(
        self,
        scope: component.Scope,
        image: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scope = scope
        self._image = image
        self._sleep = sleep
        self._clock = clock
        self._statuses: list[ops.StatusBase] = []

    def reconcile(self) -> None:
        """Bring the better backend to work, then take the other one away."""
        self._statuses = []
        wishes = Wishes.of(self._scope, lifecycle_in_model=self._is_model_in_scope())
        if not self._scope.leader:
            self._observe(wishes.settings()["revision"])
        elif self._scope.config.admission != "webhook" and self._policy(wishes):
            self._webhook(wishes).remove()
            self._statuses.append(ops.ActiveStatus("policy"))
        elif self._scope.config.admission != "policy":
            self._serve(wishes)

    def rotate(self) -> dict[str, str]:
        """Replace the webhook's certificates now, and say what came of it.

        Raises:
            CharmError: Another unit has to do it.
        """
        if not self._scope.leader:
            raise errors.CharmError("only the leader replaces certificates: use its unit")
        wishes = Wishes.of(self._scope, lifecycle_in_model=self._is_model_in_scope())
        backend = self._webhook(wishes)
        if not backend.is_asked:
            return {"result": "no webhook is in use, so there are no certificates"}
        backend.reconcile(rotate=True)
        trial = self._try("webhook", wishes.settings()["revision"], patiently=True)
        answers = "answers" if trial.works else f"does not answer: {trial.problem}"
        return {
            "result": f"certificates are replaced, the webhook {answers}",
            "note": "servers show the new one within a minute; both are trusted for a day",
        }

    def remove(self) -> None:
        """Take away both backends."""
        self._statuses = []
        failures: list[errors.CharmError] = []
        wishes = Wishes.of(self._scope, lifecycle_in_model=True)
        for remove in (self._webhook(wishes).remove, self._remove_policy):
            try:
                remove()
            except errors.CharmError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say which backend changes pods, or what it takes."""
        return tuple(self._statuses)

    def _remove_policy(self) -> None:
        self._scope.manifests.remove(POLICY_FOLDER)

    def _is_model_in_scope(self) -> bool:
        namespace = self._scope.cluster.get(cluster.NAMESPACE, self._scope.model)
        told = cluster.at(namespace, "metadata", "labels").get(LIFECYCLE_LABEL)
        return "model" in self._scope.config.lifecycle_namespaces and told != "disabled"

    def _namespaces(self, wishes: Wishes) -> Namespaces:
        groups = self._scope.config.lifecycle_namespaces if wishes.changes_lifecycle else ()
        istiod = self._scope.mesh.namespace if self._scope.mesh else ""
        return namespace_selectors(self._scope.model, groups, istiod_namespace=istiod)

    def _policy(self, wishes: Wishes) -> bool:
        """Apply the policy and tell whether it changes pods."""
        changed = self._apply_policy(wishes)
        trial = Trial(works=False, problem="the cluster serves no MutatingAdmissionPolicy")
        if changed is not None:
            trial = self._try("policy", wishes.settings()["revision"], patiently=changed)
        if trial.works:
            return True
        logger.info("The policy does not work: %s", trial.problem)
        if self._scope.config.admission == "policy":
            hint = "set admission=auto or admission=webhook"
            self._statuses.append(ops.BlockedStatus(f"admission: {trial.problem}; {hint}"))
        return False

    def _apply_policy(self, wishes: Wishes) -> bool | None:
        """Tell whether the policy had to be written; None where there are no policies."""
        owner = self._scope.manifests.owner
        for version in ("v1", "v1beta1"):
            kind = cluster.kind(
                f"admissionregistration.k8s.io/{version}", "MutatingAdmissionPolicy"
            )
            context = policy_context(
                wishes, self._namespaces(wishes), owner=owner, version=version
            )
            before = self._scope.cluster.get(kind, context.name)
            try:
                live = self._scope.manifests.apply(POLICY_FOLDER, context)
            except errors.KindAbsentError:
                continue
            return before is None or _version(live[0]) != _version(before)
        return None

    def _serve(self, wishes: Wishes) -> None:
        backend = self._webhook(wishes)
        state = backend.reconcile()
        if state.waiting:
            self._statuses.append(ops.WaitingStatus(f"admission: {state.waiting}"))
            return
        trial = self._try("webhook", wishes.settings()["revision"], patiently=state.changed)
        if not trial.works:
            problem = f"admission: the webhook does not answer yet: {trial.problem}"
            self._statuses.append(ops.WaitingStatus(problem[:200]))
            return
        if self._scope.config.admission == "webhook":
            self._remove_policy()
        self._statuses.append(ops.ActiveStatus("webhook"))

    def _webhook(self, wishes: Wishes) -> webhook.Webhook:
        return webhook.Webhook(
            self._scope, self._image, wishes.settings(), self._namespaces(wishes)
        )

    def _observe(self, revision: str) -> None:
        for backend in ("policy", "webhook"):
            if self._trial(backend, revision).works:
                self._statuses.append(ops.ActiveStatus(backend))
                return
        self._statuses.append(ops.WaitingStatus("admission: waiting for the leader"))

    def _try(self, backend: str, revision: str, *, patiently: bool) -> Trial:
        end = self._clock() + PROBE_SECONDS
        trial = self._trial(backend, revision)
        for delay in PROBE_DELAYS if patiently else ():
            if trial.works or self._clock() + delay > end:
                break
            self._sleep(delay)
            trial = self._trial(backend, revision)
        return trial

    def _trial(self, backend: str, revision: str) -> Trial:
        pod = probe.pod(self._scope.model, {PROBE_LABEL: backend}, native=False)
        try:
            created = self._scope.cluster.create(pod, dry_run=True)
        except errors.ForbiddenError:
            raise
        except errors.ApiError as error:
            return Trial(works=False, problem=error.message)
        found = cluster.at(created, "metadata", "annotations").get(SETTINGS_ANNOTATION)
        if found is None:
            return Trial(works=False, problem="a dry-run pod came back unchanged")
        if found != revision:
            return Trial(works=False, problem="a dry-run pod came back with older settings")
        return Trial(works=True)


def _version(obj: cluster.Object) -> str:
    return obj["metadata"]["resourceVersion"]
