"""The order in which the charm's components are reconciled, removed and withdrawn."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator

import opentelemetry.trace
import ops
import tenacity

from integrator_contract import charm_facts, service
from istio_integrator import diagnosis, error_messages, observability
from istio_integrator.admission.admission import Admission
from istio_integrator.component import Component
from istio_integrator.facts import Facts
from istio_integrator.ingress import certificate
from istio_integrator.ingress.ingress import Ingress
from istio_integrator.kube import errors
from istio_integrator.lifecycle.service import WorkloadService
from istio_integrator.membership.claims import Claims
from istio_integrator.membership.model_namespace import Membership
from istio_integrator.messages import Message
from istio_integrator.mtls.mtls import MutualTls
from istio_integrator.policies.policies import Authorization
from istio_integrator.tenants.tenant_policy import TenantPolicy
from istio_integrator.training.training import Training

logger = logging.getLogger(__name__)
_tracer = opentelemetry.trace.get_tracer(__name__)

Step = Callable[[], object]
retry_conflicts = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type(errors.ConflictError),
    stop=tenacity.stop_after_attempt(3),
    reraise=True,
)
"""Calls a step again after a conflict, since the step decides by the objects that it read."""


class Hook:
    """The messages of a hook."""

    def __init__(self, application: str) -> None:
        self._application = application
        self.messages: list[Message] = []
        self.problems: list[charm_facts.Problem] = []

    def add_messages(self, part: charm_facts.Part, *messages: Message) -> None:
        """Add messages of a part of the charm."""
        severities: dict[str, charm_facts.Severity] = {
            each: each for each in charm_facts.SEVERITIES
        }
        self.messages += messages
        self.problems += (
            charm_facts.Problem(part=part, severity=severities[each.severity.value])
            for each in messages
            if each.severity.value in severities
        )

    @contextlib.contextmanager
    def catch_errors(self, part: charm_facts.Part) -> Generator[None]:
        """Turn an error into a message, and end the part."""
        try:
            yield
        except errors.CharmError as error:
            problems = error.problems if isinstance(error, errors.ConfigError) else [error]
            for problem in problems:
                logger.warning("%s: %s", type(error).__name__, problem)
            self.add_messages(
                part, error_messages.explain_error(error, application=self._application)
            )
            opentelemetry.trace.get_current_span().set_attribute(
                "error.type", type(error).__name__
            )

    def reconcile(self, component: Component) -> None:
        """Reconcile a component; an error does not stop the others."""
        name = f"{type(component).__name__}.reconcile"
        with _tracer.start_as_current_span(name), self.catch_errors(component.name):
            self.add_messages(component.name, *retry_conflicts(component.reconcile))


def reconcile(hook: Hook, facts: Facts, charm: ops.CharmBase) -> None:
    """Reconcile all components, and record the results of the hook.

    Admission prepares new pods before the namespace joins. But a model joins ambient mode before
    the webhook that prepared its sidecars is removed. The settings of the workload follow the
    membership at once, so that they do not wait for other components. The gateway gets permission
    to call an application before its routes exist.
    """
    hook.reconcile(Claims(facts))
    admission = Admission(facts)
    if facts.data_plane == "ambient":
        membership = Membership(facts)
        hook.reconcile(membership)
        hook.reconcile(admission)
    else:
        hook.reconcile(admission)
        membership = Membership(facts, are_pods_prepared=admission.is_working)
        hook.reconcile(membership)
    lifecycle = WorkloadService(facts, joined=membership.joined)
    hook.reconcile(lifecycle)
    hook.reconcile(Training(facts))
    hook.reconcile(Authorization(facts))
    hook.reconcile(TenantPolicy(facts))
    ingress = Ingress(facts)
    hook.reconcile(ingress)
    hook.reconcile(MutualTls(facts))
    hook.reconcile(observability.Observability(facts, charm))
    hook.add_messages("diagnosis", *diagnosis.find_concerns(facts))
    results = charm_facts.CharmFacts(
        looked=time.time(),
        problems=tuple(hook.problems),
        gateway_ready=ingress.is_up,
        guard=facts.authentication.guard_state if ingress.is_up is not None else None,
        certificates=(
            *certificate.read_life("gateway", ingress.certificate.served_pem),
            *certificate.read_life("webhook", admission.certificate),
        ),
        progress=lifecycle.progress,
        old_proxies=lifecycle.old_proxies,
    )
    situation, expected = facts.situation, ingress.expected
    if not (situation.leader and situation.is_exposed):
        expected = None
    elif expected is None:
        expected = situation.workload.read_expectation()
    situation.workload.write_results(service.Results(facts=results, expected=expected))


def withdraw(hook: Hook, facts: Facts) -> None:
    """End the work of an application in a model that it may not serve.

    Otherwise two applications would replace pods and prepare new ones.
    """
    shared = (MutualTls(facts).remove, Admission(facts).remove, Training(facts).remove)
    for step in (WorkloadService(facts).stop, *(shared if facts.situation.leader else ())):
        with hook.catch_errors("membership"):
            retry_conflicts(step)


def list_removal_steps(facts: Facts) -> tuple[Step, ...]:
    """Return the steps that remove the application's objects, in order.

    Juju 4 may end the hook after ten seconds and deletes the charm's own objects, so the label
    goes early, and what each step leaves is harmless. Strict mTLS ends before new pods lose
    their sidecars. The label goes before the webhook, which orders a unit pod's containers.
    The EnvoyFilter goes after the gateway's Envoy, which the workload reads, has no server.
    """
    lifecycle, ingress = WorkloadService(facts), Ingress(facts)
    return (
        lifecycle.stop_convergence,
        MutualTls(facts).remove,
        ingress.remove_gateway,
        Membership(facts).remove,
        Admission(facts).remove,
        Claims(facts).remove,
        ingress.remove_routes,
        TenantPolicy(facts).remove,
        Authorization(facts).remove,
        Training(facts).remove,
        ingress.remove_guard,
        lifecycle.remove,
    )
