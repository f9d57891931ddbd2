"""Operation and checks of the webhook that prepares new pods."""

from __future__ import annotations

import dataclasses
import functools
import time

from integrator_contract import dry_run, names, pods
from integrator_contract.rejections import Rejections
from istio_integrator import error_messages
from istio_integrator.admission import rejections, settings, webhook
from istio_integrator.component import Component
from istio_integrator.facts import Facts
from istio_integrator.istio import injectors
from istio_integrator.kube import cluster, errors
from istio_integrator.messages import Message, Template

PROBE_DELAYS = (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)
"""Seconds between dry runs after a change, which API servers notice with a delay."""
PROBE_SECONDS = 5.0
"""After this time no further dry run is sent; each may take the webhook's timeout of 3 s."""


class Admission(Component):
    """Runs the webhook while new pods need it."""

    name = "admission"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._webhook = webhook.Webhook(facts.situation)
        self.is_working = False
        """Whether the webhook changed a dry-run pod in this hook, so that the model may join."""

    def reconcile(self) -> list[Message]:
        """Run the webhook if new pods need it, else remove it; only the leader does."""
        self.is_working = False
        if not self._situation.leader:
            return []
        rejected = rejections.report(self._rejections, self._situation)
        if self.is_needed:
            return [*rejected, self._apply_and_test()]
        self.remove()
        return [*rejected, Template.ADMISSION_OFF()]

    def rotate(self) -> dict[str, str]:
        """Replace the webhook's certificate now, on the leader only."""
        if not self._situation.leader:
            raise errors.CharmError("only the leader replaces certificates: use its unit")
        if self._webhook.configuration is None:
            return {"result": "no webhook is in use, so there are no certificates"}
        if waiting := self._apply(rotate=True):
            raise errors.CharmError(f"nothing is replaced: {waiting}")
        answers = "answers"
        if problem := self._test_repeatedly(patiently=True):
            answers = f"does not answer: {problem.about.get('problem', problem.finding)}"
        return {
            "result": f"certificates are replaced, the webhook {answers}",
            "note": "servers show the new one within a minute; both are trusted for a day",
        }

    def remove(self) -> None:
        """Remove the webhook."""
        webhook.remove(self._situation.manifests)

    @property
    def certificate(self) -> str:
        """The certificate of the webhook's servers, in PEM; empty without a webhook."""
        return self._webhook.certificate

    def find_problem(self) -> Message | None:
        """Return why a dry run does not show that the webhook prepares pods; None if it does."""
        return self._find_cause(self._test_webhook())

    @property
    def is_needed(self) -> bool:
        """Whether a served namespace injects sidecars or will, or an option changes pods."""
        facts, situation, options = self._facts, self._situation, self._situation.config
        if options.included_pods or options.excluded_pods or options.pod_rules.rules:
            return True
        gives_sidecars = facts.data_plane == "sidecar"
        if gives_sidecars and facts.mesh is not None and options.membership == "namespace":
            return True
        spaces = {*facts.served_namespaces} - {situation.model}
        # The model's pods are prepared even if served-namespaces leaves the model out.
        if gives_sidecars:
            spaces.add(situation.model)
        found = (situation.cluster.get(cluster.NAMESPACE, name) for name in spaces)
        return any(
            injectors.gives_sidecars(cluster.at(each, "metadata", "labels")) for each in found
        )

    @functools.cached_property
    def _rejections(self) -> Rejections:
        return rejections.read(self._situation)

    @functools.cached_property
    def _mesh_settings(self) -> settings.MeshSettings:
        mesh, before = self._facts.mesh, None
        if mesh is None or not mesh.proxy.probed:
            before = settings.MeshSettings.read(self._webhook.settings)
        return settings.MeshSettings.from_facts(self._facts, before)

    @functools.cached_property
    def _settings(self) -> pods.Settings:
        mesh, left_out = self._facts.mesh, {*self._rejections.changes}
        if mesh is not None and mesh.native_refused:
            left_out.add("native")
        return settings.make_settings(self._facts, self._mesh_settings, left_out)

    def _apply(self, *, rotate: bool = False) -> str:
        served = dataclasses.replace(
            self._facts.served, mesh_namespace=self._mesh_settings.istiod_namespace
        )
        if not self._settings.changes_lifecycle:
            served = dataclasses.replace(served, kinds=frozenset())
        annotations = {names.MESH_SETTINGS: self._mesh_settings.encode()}
        return self._webhook.reconcile(
            self._facts.image, self._settings, served, annotations=annotations, rotate=rotate
        )

    def _apply_and_test(self) -> Message:
        if waiting := self._apply():
            problem = Template.ADMISSION_STARTING(problem=waiting)
        else:
            problem = self._test_repeatedly(patiently=self._webhook.changed)
        self.is_working = problem is None
        return self._find_cause(problem) or Template.ADMISSION_WORKS()

    def _find_cause(self, problem: Message | None) -> Message | None:
        # A quota or policy that rejects the webhook's pods often refuses the dry-run pod, too.
        return None if problem is None else self._webhook.find_obstacle() or problem

    def _test_repeatedly(self, *, patiently: bool) -> Message | None:
        end = time.monotonic() + PROBE_SECONDS
        problem = self._test_webhook()
        for delay in PROBE_DELAYS if patiently else ():
            is_starting = problem is not None and problem.template is Template.ADMISSION_STARTING
            if not is_starting or time.monotonic() + delay > end:
                break
            time.sleep(delay)
            problem = self._test_webhook()
        return problem

    def _test_webhook(self) -> Message | None:
        """Return why the webhook does not change a dry-run pod; None if it does."""
        situation = self._situation
        like = situation.cluster.get(cluster.POD, situation.pod_name, situation.model)
        pod = dry_run.make_pod(like or {}, {names.PROBE: "true"}, namespace=situation.model)
        try:
            created = situation.cluster.create(pod, dry_run=True)
        except errors.RefusedError as error:
            refusal = error.refusal
            # The webhook keeps its dry-run pod outside of the mesh. The pod reaches istiod only
            # without it.
            if refusal.is_istio:
                return Template.ADMISSION_STARTING(problem=str(refusal)[:200])
            return error_messages.explain_refusal(refusal, f"a dry-run Pod in {situation.model}")
        except errors.ApiError as error:
            return Template.ADMISSION_STARTING(problem=error.message[:200])
        found = cluster.at(created, "metadata", "annotations").get(names.SETTINGS)
        if found is None:
            problem = "the webhook does not change a dry-run pod yet"
        elif found != self._settings.digest:
            problem = "the webhook changes a dry-run pod by older settings"
        else:
            return None
        return Template.ADMISSION_STARTING(problem=problem)
