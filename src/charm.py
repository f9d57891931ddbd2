#!/usr/bin/env python3
"""The charm: each Juju event reconciles every part, and the unit status shows the result."""

from __future__ import annotations

import dataclasses
import logging

import opentelemetry.trace
import ops
import ops_tracing
import tenacity

from integrator_contract.charm_facts import Part, Problem
from istio_integrator import actions, charm_facts, diagnosis, error_messages, messages, order
from istio_integrator.config import config
from istio_integrator.ingress import certificate
from istio_integrator.kube import errors, fences
from istio_integrator.lifecycle import workload
from istio_integrator.membership import model_namespace
from istio_integrator.messages import Message
from istio_integrator.relations import endpoints, kubeflow
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)
# Each request would be a dozen lines of `juju debug-log`, each a process in the hook's path.
for _library in ("httpx2", "httpcore2"):
    logging.getLogger(_library).setLevel(logging.WARNING)

_tracer = opentelemetry.trace.get_tracer("charm")
_retry_conflicts = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type(errors.ConflictError),
    stop=tenacity.stop_after_attempt(3),
    reraise=True,
)
"""Calls a step again after a conflict, since the step decides by the objects that it read."""


class IstioIntegrator(ops.CharmBase):
    """Joins its model to the Istio of the cluster."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        fences.forget()
        self.tracing = ops_tracing.Tracing(
            self, tracing_relation_name="tracing", ca_relation_name="receive-ca-cert"
        )
        # Its handlers run before this charm's, which read its results.
        self._certificates = certificate.requirer(self)
        self._messages: list[Message] = []
        self._problems: list[Problem] = []
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
            *endpoints.events(self),
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
        all_parts = self._parts_without_mesh()
        if not (is_last or all_parts.lifecycle.is_running):
            return
        failed: list[errors.CharmError] = []
        for step in all_parts.removal:
            try:
                _retry_conflicts(step)
            except errors.CharmError as error:
                logger.warning("%s: %s", step.__qualname__, error)
                failed.append(error)
        for refusal in all_parts.situation.cluster.missing:
            logger.warning("Not removed, for want of a right: %s", refusal)
        hopeless = (errors.ForbiddenError, errors.LifecycleError)
        if is_last and any(not isinstance(error, hopeless) for error in failed):
            # Juju runs the hook again. Without rights or the workload it would never succeed.
            raise failed[0]

    def _on_action(self, event: ops.ActionEvent) -> None:
        """Reconcile every part, then answer; an error fails the action."""
        name = event.handle.kind.removesuffix("_action").replace("_", "-")
        all_parts = self._reconcile()
        if all_parts is None:
            said = [message.text for message in self._messages]
            event.fail("; ".join(said) or "the application is being removed")
            return
        try:
            event.set_results(actions.ANSWERS[name](all_parts, event.params))
        except errors.CharmError as error:
            event.fail(str(error))

    def _on_diagnose(self, event: ops.ActionEvent) -> None:
        """Reconcile every part, then run all checks, even after an error."""
        try:
            all_parts = self._reconcile() or self._parts_to_check()
        except errors.CharmError as error:
            event.fail(str(error))
        else:
            diagnosis.answer(event, all_parts, self._messages)

    def _on_collect_status(self, event: ops.CollectStatusEvent) -> None:
        # Events without a reconcile keep the last status.
        if self._messages:
            for each in self._messages:
                logger.debug("%s: %s.", each.severity.value, each.text)
            event.add_status(messages.status(self._messages, application=self.app.name))

    def _reconcile(self) -> order.Parts | None:
        """Reconcile every part; return None if that is impossible, as the messages explain."""
        if self.app.planned_units() == 0:
            # Another unit may already be removing objects: do not create them again.
            return None
        self._messages, self._problems = [], []
        with _tracer.start_as_current_span("reconcile") as span:
            all_parts = self._brought_about()
            span.set_attribute("leader", self.unit.is_leader())
            span.set_attribute("outcome", "all parts" if all_parts else "stopped early")
            if self._problems:
                said = [f"{each.part}: {each.severity}" for each in self._problems]
                span.set_attribute("problems", said)
        facts = charm_facts.collected(self._problems, all_parts)
        expected = all_parts.ingress.expected if all_parts else None
        charm_facts.write(self.unit.get_container(workload.CONTAINER), facts, expected)
        return all_parts

    def _brought_about(self) -> order.Parts | None:
        kubeflow.announce_versions(endpoints.Relations(self))
        try:
            options = config.Config.load(self.config)
        except errors.ConfigError as error:
            self._say("config", self._message_of(error))
            return None
        try:
            all_parts = self._parts_with_mesh(options)
            refusal = _retry_conflicts(all_parts.membership.claim)
        except errors.CharmError as error:
            self._say("mesh", self._message_of(error))
            return None
        if refusal:
            self._say("membership", refusal)
            for step in all_parts.withdrawal:
                self._attempt("membership", step)
            return None
        if all_parts.discovered:
            self._say("mesh", *all_parts.discovered.said)
        for part in (*all_parts.reconciled, diagnosis.Concerns(all_parts)):
            self._attempt(part.name, part.reconcile)
        return all_parts

    def _say(self, part: Part, *said: Message) -> None:
        self._messages += said
        self._problems += charm_facts.problems(part, said)

    def _attempt(self, part: Part, step: order.Step) -> None:
        """Run one step; its error becomes a status and does not stop the other steps."""
        with _tracer.start_as_current_span(step.__qualname__) as span:
            try:
                self._say(part, *(_retry_conflicts(step) or ()))
            except errors.CharmError as error:
                span.set_attribute("error.type", type(error).__name__)
                self._say(part, self._message_of(error))

    def _message_of(self, error: errors.CharmError) -> Message:
        problems = error.problems if isinstance(error, errors.ConfigError) else [error]
        for problem in problems:
            logger.warning("%s: %s", type(error).__name__, problem)
        return error_messages.of_error(error, application=self.app.name)

    def _parts_with_mesh(self, options: config.Config) -> order.Parts:
        """Find the Istio to join, and make the parts for it.

        Raises:
            CharmError: The API server does not answer; nothing has changed.
        """
        found = situation.Situation.of(self, options, self._certificates)
        search = found.discover()
        found = dataclasses.replace(found, mesh=search.mesh)
        found = dataclasses.replace(found, data_plane=model_namespace.data_plane(found))
        return order.Parts(self, found, search)

    def _parts_without_mesh(self) -> order.Parts:
        options = self._valid_options
        return order.Parts(self, situation.Situation.of(self, options, self._certificates))

    def _parts_to_check(self) -> order.Parts:
        try:
            return self._parts_with_mesh(self._valid_options)
        except errors.CharmError:
            return self._parts_without_mesh()

    @property
    def _valid_options(self) -> config.Config:
        try:
            return config.Config.load(self.config)
        except errors.ConfigError:
            return config.Config()


if __name__ == "__main__":
    ops.main(IstioIntegrator)
