#!/usr/bin/env python3
"""The charm: each Juju event reconciles every part, and the unit status shows the result."""

from __future__ import annotations

import logging
import time

import opentelemetry.trace
import ops
import ops_tracing

from integrator_contract import charm_facts, service
from istio_integrator import actions, diagnosis, messages, order
from istio_integrator.config import config
from istio_integrator.facts import Facts
from istio_integrator.ingress import certificate
from istio_integrator.kube import errors, fences
from istio_integrator.membership.model_namespace import Membership
from istio_integrator.relations import endpoints, kubeflow
from istio_integrator.situation import workload
from istio_integrator.situation.situation import Situation

logger = logging.getLogger(__name__)
# Each request would be a dozen lines of `juju debug-log`, each a process in the hook's path.
for _library in ("httpx2", "httpcore2"):
    logging.getLogger(_library).setLevel(logging.WARNING)

_tracer = opentelemetry.trace.get_tracer("charm")


class IstioIntegrator(ops.CharmBase):
    """Joins its model to the Istio of the cluster."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        fences.clear_notes()
        self.tracing = ops_tracing.Tracing(
            self, tracing_relation_name="tracing", ca_relation_name="receive-ca-cert"
        )
        # Its handlers run before this charm's, which read its results.
        self._certificates = certificate.observe_relation(self)
        self._hook = order.Hook(self.app.name)
        container = self.on[workload.CONTAINER]
        for event in (
            self.on.start,
            self.on.config_changed,
            self.on.update_status,
            container.pebble_ready,
            container.pebble_custom_notice,
            container.pebble_check_failed,
            container.pebble_check_recovered,
            self.on.upgrade_charm,
            self.on.leader_elected,
            self.on.stop,
            self.on.remove,
            *endpoints.list_events(self),
        ):
            framework.observe(event, self._on_event)
        framework.observe(self.on.collect_unit_status, self._on_collect_status)
        for name in self.meta.actions:
            answer = self._on_diagnose if name == "diagnose" else self._on_action
            framework.observe(self.on[name].action, answer)

    def _on_event(self, event: ops.EventBase) -> None:
        if self.app.planned_units() == 0:
            self._remove(is_last=isinstance(event, ops.RemoveEvent))
            return
        if isinstance(event, ops.StopEvent | ops.RemoveEvent):
            return
        self._reconcile()

    def _remove(self, *, is_last: bool) -> None:
        """Remove everything in the first hook without planned units, and again in the last.

        Juju 4 may skip the last. Scaling to 0 units looks like a removal, and needs the same. The
        service stops with the last step of the first hook.
        """
        situation = self._read_situation()
        if not (is_last or situation.workload.is_running):
            return
        failed: list[errors.CharmError] = []
        for step in order.list_removal_steps(Facts(situation)):
            try:
                order.retry_conflicts(step)
            except errors.CharmError as error:
                logger.warning("%s: %s", step.__qualname__, error)
                failed.append(error)
        for refusal in situation.cluster.missing:
            logger.warning("Not removed, for want of a right: %s", refusal)
        hopeless = (errors.ForbiddenError, errors.LifecycleError)
        if is_last and any(not isinstance(error, hopeless) for error in failed):
            # Juju runs the hook again. Without rights or the workload it would never succeed.
            raise failed[0]

    def _on_action(self, event: ops.ActionEvent) -> None:
        """Reconcile every part, then answer; an error fails the action."""
        name = event.handle.kind.removesuffix("_action").replace("_", "-")
        facts = self._reconcile()
        if facts is None:
            said = [message.text for message in self._hook.messages]
            event.fail("; ".join(said) or "the application is being removed")
            return
        try:
            event.set_results(actions.ANSWERS[name](facts, event.params))
        except errors.CharmError as error:
            event.fail(str(error))

    def _on_diagnose(self, event: ops.ActionEvent) -> None:
        """Reconcile every part, then run all checks, even after an error."""
        try:
            facts = self._reconcile() or self._find_facts_to_check()
        except errors.CharmError as error:
            event.fail(str(error))
        else:
            diagnosis.answer_action(event, facts, self._hook.messages)

    def _on_collect_status(self, event: ops.CollectStatusEvent) -> None:
        # Events without a reconcile keep the last status.
        if self._hook.messages:
            for each in self._hook.messages:
                logger.debug("%s: %s.", each.severity.value, each.text)
            event.add_status(messages.make_status(self._hook.messages, application=self.app.name))

    def _reconcile(self) -> Facts | None:
        """Reconcile every part; return None if that is impossible, as the messages explain."""
        if self.app.planned_units() == 0:
            # Another unit may already be removing objects: do not create them again.
            return None
        self._hook = hook = order.Hook(self.app.name)
        with _tracer.start_as_current_span("reconcile") as span:
            if facts := self._claim_model(hook):
                order.reconcile(hook, facts, self)
            span.set_attribute("leader", self.unit.is_leader())
            span.set_attribute("outcome", "all parts" if facts else "stopped early")
            if hook.problems:
                said = [f"{each.part}: {each.severity}" for each in hook.problems]
                span.set_attribute("problems", said)
        if facts is None:
            client = workload.WorkloadClient(self.unit.get_container(workload.CONTAINER))
            found = charm_facts.CharmFacts(looked=time.time(), problems=tuple(hook.problems))
            client.write_results(service.Results(facts=found, expected=client.read_expectation()))
        return facts

    def _claim_model(self, hook: order.Hook) -> Facts | None:
        """Find the Istio to join, and claim the model; return None if that is impossible."""
        kubeflow.announce_versions(endpoints.Relations(self))
        with hook.catch_errors("config"):
            options = config.Config.load(self.config)
            with hook.catch_errors("mesh"):
                facts = self._find_facts(options)
                if refusal := order.retry_conflicts(Membership(facts).claim):
                    hook.add_messages("membership", refusal)
                    order.withdraw(hook, facts)
                    return None
                hook.add_messages("mesh", *(facts.discovered.messages if facts.discovered else ()))
                return facts
        return None

    def _find_facts(self, options: config.Config) -> Facts:
        """Search for the Istio to join.

        Raises:
            CharmError: The API server does not answer; nothing has changed.
        """
        situation = self._read_situation(options)
        facts = Facts(situation, situation.discover())
        logger.debug("Data plane: %s.", facts.data_plane)
        return facts

    def _find_facts_to_check(self) -> Facts:
        try:
            return self._find_facts(self._valid_options)
        except errors.CharmError:
            return Facts(self._read_situation())

    def _read_situation(self, options: config.Config | None = None) -> Situation:
        return Situation(self, options or self._valid_options, self._certificates)

    @property
    def _valid_options(self) -> config.Config:
        try:
            return config.Config.load(self.config)
        except errors.ConfigError:
            return config.Config()


if __name__ == "__main__":
    ops.main(IstioIntegrator)
