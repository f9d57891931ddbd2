"""What new pods get, by a policy where the API server has them, else by a webhook."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable

import ops

from integrator_contract import names
from istio_integrator import parts
from istio_integrator.admission import policy, settings, webhook
from istio_integrator.kube import cluster, errors, fences, owners
from istio_integrator.mesh import injectors, probe

logger = logging.getLogger(__name__)


PROBE_DELAYS = (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)
"""Seconds between two probes after a change, which API servers take a moment to notice."""
PROBE_SECONDS = 5.0
"""After which no further probe is sent; each may itself take the webhook's 3 s."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """What became of a dry-run pod that one backend should have changed."""

    works: bool
    problem: str = ""


class Admission:
    """Keeps one backend at work, and none where it is not prepared.

    Args:
        scope: What every part may use.
        image: Tells which image a webhook would run; empty while there is none to run.
        sleep: Between two probes.
        clock: That never goes back, in seconds.
    """

    def __init__(
        self,
        scope: parts.Context,
        image: Callable[[], str],
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scope = scope
        self._image = image
        self._sleep = sleep
        self._clock = clock
        self._statuses: list[ops.StatusBase] = []
        self._is_refused = False
        self.certificate = ""
        """What the webhook's servers show, in PEM; empty where there is no webhook."""

    def reconcile(self) -> None:
        """Bring the better backend to work, then take the other one away."""
        self._statuses = []
        prepared = self._prepared()
        if not self.is_needed:
            self._statuses.append(ops.ActiveStatus("new pods need nothing"))
            if self._scope.leader:
                self._take_away(prepared)
        elif not self._scope.leader:
            self._observe()
        elif self._scope.config.admission != "webhook" and self._policy(prepared):
            self._webhook(prepared).remove()
            self._statuses.append(ops.ActiveStatus("policy"))
        elif self._scope.config.admission != "policy":
            self._serve(prepared)

    def rotate(self) -> dict[str, str]:
        """Replace the webhook's certificates now, and say what came of it.

        Raises:
            CharmError: Another unit has to do it.
        """
        if not self._scope.leader:
            raise errors.CharmError("only the leader replaces certificates: use its unit")
        prepared = self._prepared()
        backend = self._webhook(prepared)
        if not backend.is_asked:
            return {"result": "no webhook is in use, so there are no certificates"}
        state = backend.reconcile(rotate=True)
        if state.waiting:
            raise errors.CharmError(f"nothing is replaced: {state.waiting}")
        trial = self._try("webhook", prepared.settings.revision, patiently=True)
        answers = "answers" if trial.works else f"does not answer: {trial.problem}"
        return {
            "result": f"certificates are replaced, the webhook {answers}",
            "note": "servers show the new one within a minute; both are trusted for a day",
        }

    def remove(self) -> None:
        """Take away both backends."""
        self._statuses = []
        self._take_away(
            settings.Preparation.of(self._scope, settings.Seen(), lifecycle_in_model=True)
        )

    def _take_away(self, prepared: settings.Preparation) -> None:
        failures: list[errors.CharmError] = []
        for remove in (self._webhook(prepared).remove, self._remove_policy):
            try:
                remove()
            except errors.CharmError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say which backend changes pods, or what it takes."""
        return tuple(self._statuses)

    def trials(self) -> dict[str, Trial]:
        """Try what each backend makes of a dry-run pod; nothing is written."""
        revision = self._prepared().settings.revision
        return {backend: self._trial(backend, revision) for backend in ("policy", "webhook")}

    def _remove_policy(self) -> None:
        self._scope.manifests.remove(policy.FOLDER)

    def _prepared(self) -> settings.Preparation:
        seen = settings.Seen.of(self._scope, self._seen_before())
        return settings.Preparation.of(
            self._scope, seen, lifecycle_in_model=self._is_model_in_scope()
        )

    def _seen_before(self) -> settings.Seen | None:
        if self._scope.mesh is not None and self._scope.mesh.probed:
            return None
        name = owners.object_name(self._scope.application, "admission")
        by_webhook = self._scope.cluster.get(cluster.CONFIG_MAP, name, self._scope.model)
        if seen := settings.Seen.read(by_webhook):
            return seen
        for version in policy.VERSIONS:
            if seen := settings.Seen.read(self._live_policy(version)):
                return seen
        return None

    def _live_policy(self, version: str) -> cluster.Object | None:
        kind = cluster.kind(f"admissionregistration.k8s.io/{version}", "MutatingAdmissionPolicy")
        name = policy.name(self._scope.manifests.owner)
        owned = self._scope.manifests.owned_of(kind)
        return next((each for each in owned if each["metadata"]["name"] == name), None)

    def _is_model_in_scope(self) -> bool:
        scope = self._scope
        namespace = scope.cluster.get(cluster.NAMESPACE, scope.model)
        labels = cluster.at(namespace, "metadata", "labels")
        return scope.served.kind_of(scope.model, labels) == "model"

    @property
    def is_needed(self) -> bool:
        """Tell whether any pod is to get something: in ambient mode few are."""
        scope, options = self._scope, self._scope.config
        if scope.data_plane != "ambient" or options.mesh_membership == "selected":
            return True
        rules = options.pod_rules
        asked = (rules.pod_labels, rules.pod_annotations, rules.image_registries)
        if options.excluded_pods or any(asked):
            return True
        for namespace in scope.cluster.list(cluster.NAMESPACE):
            with fences.around(cluster.reference(namespace)):
                labels = cluster.at(namespace, "metadata", "labels")
                kind = scope.served.kind_of(namespace["metadata"]["name"], labels)
                if kind not in (None, "model") and injectors.gives_sidecars(labels):
                    return True
        return False

    def _namespaces(self, prepared: settings.Preparation) -> policy.Namespaces:
        served = dataclasses.replace(
            self._scope.served, mesh_namespace=prepared.seen.istiod_namespace
        )
        if not prepared.settings.changes_lifecycle:
            served = dataclasses.replace(served, kinds=frozenset())
        return policy.namespace_selectors(served)

    def _policy(self, prepared: settings.Preparation) -> bool:
        """Apply the policy and tell whether it changes pods."""
        trial = Trial(works=False, problem="the cluster serves no MutatingAdmissionPolicy")
        try:
            changed = self._apply_policy(prepared)
        except errors.InvalidError as error:
            # Each version of the API server knows its own functions of CEL.
            self._is_refused = True
            trial = Trial(works=False, problem=f"the policy is refused: {error.message}"[:150])
        else:
            if changed is not None:
                trial = self._try("policy", prepared.settings.revision, patiently=changed)
        if trial.works:
            return True
        logger.info("The policy does not work: %s", trial.problem)
        if self._scope.config.admission == "policy":
            hint = "set admission=auto or admission=webhook"
            self._statuses.append(ops.BlockedStatus(f"admission: {trial.problem}; {hint}"))
        return False

    def _apply_policy(self, prepared: settings.Preparation) -> bool | None:
        """Tell whether the policy had to be written; None where there are no policies."""
        owner = self._scope.manifests.owner
        for version in policy.VERSIONS:
            context = policy.context(
                prepared, self._namespaces(prepared), owner=owner, version=version
            )
            before = self._live_policy(version)
            try:
                live = self._scope.manifests.apply(policy.FOLDER, context)
            except errors.KindAbsentError:
                continue
            return before is None or _version(live[0]) != _version(before)
        return None

    def _serve(self, prepared: settings.Preparation) -> None:
        backend = self._webhook(prepared)
        state = backend.reconcile()
        self.certificate = state.certificate
        if state.waiting:
            self._statuses.append(ops.WaitingStatus(f"admission: {state.waiting}"))
            return
        trial = self._try("webhook", prepared.settings.revision, patiently=state.changed)
        if not trial.works:
            problem = f"admission: the webhook does not answer yet: {trial.problem}"
            self._statuses.append(ops.WaitingStatus(problem[:200]))
            return
        if self._scope.config.admission == "webhook" or self._is_refused:
            # An older one would go on beside the webhook.
            self._remove_policy()
        self._statuses.append(ops.ActiveStatus("webhook"))

    def _webhook(self, prepared: settings.Preparation) -> webhook.Webhook:
        return webhook.Webhook(
            self._scope,
            self._image,
            prepared.settings,
            self._namespaces(prepared),
            annotations={names.SEEN: prepared.seen.text()},
        )

    def _observe(self) -> None:
        """Say which backend works, with whatever settings: the leader may be about to renew them.

        Nothing would tell this unit when it has.
        """
        for backend in ("policy", "webhook"):
            if self._trial(backend).works:
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

    def _trial(self, backend: str, revision: str = "") -> Trial:
        pod = probe.pod(self._scope.model, {names.PROBE: backend}, native=False)
        # Legal, not rare, and more than the policies of Kubernetes 1.34 can take: they leave such
        # pods alone without a word.
        pod["spec"]["containers"][0]["env"] = [{"name": "TWICE", "value": v} for v in ("1", "2")]
        try:
            created = self._scope.cluster.create(pod, dry_run=True)
        except errors.ForbiddenError:
            raise
        except errors.ApiError as error:
            return Trial(works=False, problem=error.message)
        found = cluster.at(created, "metadata", "annotations").get(names.SETTINGS)
        if found is None:
            return Trial(works=False, problem="a dry-run pod came back unchanged")
        if revision and found != revision:
            return Trial(works=False, problem="a dry-run pod came back with older settings")
        return Trial(works=True)


def _version(obj: cluster.Object) -> str:
    return obj["metadata"]["resourceVersion"]
