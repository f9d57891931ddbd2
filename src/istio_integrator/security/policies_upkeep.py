"""Who may call the model's applications: policies written, and taken back."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import re
from collections.abc import Mapping, Sequence

from integrator_contract import names
from istio_integrator import error_messages, texts
from istio_integrator.config import config
from istio_integrator.ingress.ingress import Ingress
from istio_integrator.kube import cluster, errors, owners, snapshot
from istio_integrator.messages import Message, Said
from istio_integrator.relations import endpoints, service_mesh
from istio_integrator.security import policies, policies_layer4, policies_survey
from istio_integrator.security.policies_book import Rule
from istio_integrator.security.policies_judged import CLOSED, FOLDER
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)

_MOST_TOLD = 5
"""Problems that the status tells; the others come when these are mended."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written:
    """One policy, as its template has it."""

    name: str
    labels: Mapping[str, str]
    rules: Sequence[Rule]

    @classmethod
    def of(cls, policy: policies.Policy, application: str) -> Written:
        """Give a policy a name that tells people the workload, and is no other's."""
        labels = dict(policy.selector)
        shown = labels.get(names.NAME) or policy.selector[0][1]
        plain = re.sub(r"[^a-z0-9]+", "-", shown.lower()).strip("-")[:24].rstrip("-")
        digest = hashlib.sha256(repr(policy.selector).encode()).hexdigest()[:8]
        name = owners.object_name(application, f"{plain or 'workload'}-{digest}")
        return cls(name=name, labels=labels, rules=policy.rules)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the template in authorization."""

    policies: Sequence[Written]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClosedContext:
    """The variables of the template in authorization-closed."""

    name: str


class Authorization(situation.Component):
    """Answers applications on `service-mesh`, and holds their callers to what they said."""

    name = "security"

    def __init__(
        self,
        context: situation.Situation,
        related: endpoints.Relations,
        seen: snapshot.Snapshot,
        ingress: Ingress,
    ) -> None:
        self._context = context
        self._related = related
        self._seen = seen
        self._ingress = ingress

    def reconcile(self) -> list[Message]:
        """Make the policies be as relations and the option say.

        Who may call is let in before anybody is shut out, and is shut out no more before the
        first loses its rule.

        Returns:
            Whose callers are held to what, or what it takes.
        """
        context = self._context
        if not context.leader:
            return []
        self._answer()
        if context.config.authorization == "off":
            self._give_back()
        elif reason := obstacle(context):
            self._give_back()
            return [reason]
        elif context.mesh is not None:
            decision, more = decided(context, self.asked(context.config))
            return [*_of_requests(more), *self._write(decision)]
        return []

    def remove(self) -> None:
        """Give everything back."""
        self._give_back()

    def asked(self, options: config.Config) -> policies.Asked:
        """Look at everything that is decided by; nothing is written.

        Args:
            options: Those that are asked about, which need not be the application's own.
        """
        context = dataclasses.replace(self._context, config=options)
        return policies_survey.asked(context, self._related, self._seen, self._ingress)

    @property
    def routed(self) -> frozenset[str]:
        """The Services of the model that routes of the gateway lead to."""
        found = policies_survey.routed(self._context, self._ingress)
        return frozenset(name for name, _ in found)

    def _answer(self) -> None:
        """Tell applications which labels join: none where their namespace is a member anyway."""
        labels: Mapping[str, str] | None = {}
        if self._context.config.membership == "selected":
            labels = self._context.pod_labels
        # Labels that were told stay: without them pods would leave the mesh.
        if labels is not None:
            service_mesh.answer(self._related, labels=labels)

    def _give_back(self) -> None:
        try:
            present = self._context.manifests.owned_of(cluster.AUTHORIZATION_POLICY)
        except errors.ForbiddenError as error:
            # The role is only needed with authorization; without it none was made.
            logger.debug("AuthorizationPolicies can't be listed, so none was made here: %s", error)
            return
        components = {each["metadata"]["labels"].get(names.COMPONENT) for each in present}
        for folder in (CLOSED, FOLDER):
            if folder in components:
                self._context.manifests.remove(folder)

    def _write(self, decision: policies.Decision) -> list[Message]:
        context = self._context
        if not decision.is_closed:
            context.manifests.remove(CLOSED)
        wanted = [Written.of(each, context.application) for each in decision.policies]
        refused = self._apply(wanted)
        if decision.is_closed:
            name = owners.object_name(context.application, "closed")
            context.manifests.apply(CLOSED, ClosedContext(name=name))
        problems = [_message(Said.AUTHORIZATION_INVALID, each) for each in decision.problems]
        return _report(decision, [*problems, *refused], len(wanted) - len(refused))

    def _apply(self, wanted: list[Written]) -> list[Message]:
        """Write policies but for those that the API server refuses; say why it does."""
        refused = self._context.manifests.apply_fitting(
            FOLDER, {one.name: [one] for one in wanted}, lambda fit: Context(policies=fit)
        )
        return [
            error_messages.of_object(error, f"AuthorizationPolicy {name} in {self._context.model}")
            for name, error in refused.items()
        ]


def _of_requests(workloads: Sequence[str]) -> list[Message]:
    """Say whose callers are named by what ztunnel does not look at."""
    for each in workloads:
        logger.info("Callers of %s: what is said of their requests needs a waypoint.", each)
    return [Said.REQUESTS_NEED_WAYPOINT(count=len(workloads))] if workloads else []


def _report(decision: policies.Decision, problems: list[Message], count: int) -> list[Message]:
    for problem in problems:
        logger.warning("%s.", problem.text)
    workloads = f"{count} workload{'' if count == 1 else 's'}"
    rest = ", all others closed" if decision.is_closed else ""
    return [
        *problems[:_MOST_TOLD],
        *(_message(Said.AUTHORIZATION_WAITS, text) for text in decision.waiting[:_MOST_TOLD]),
        Said.CALLERS_NAMED(workloads=workloads, rest=rest),
    ]


def _message(said: Said, problem: str) -> Message:
    return said(problem=texts.plain(problem, texts.LONGEST_PROBLEM))


def decided(
    context: situation.Situation, asked: policies.Asked
) -> tuple[policies.Decision, Sequence[str]]:
    """Decide who may call whom, as far as the model's data plane can tell.

    Returns:
        The decision, and the workloads of which more was said than that.
    """
    decision = policies.decide(asked)
    return policies_layer4.reduced(decision) if context.data_plane == "ambient" else (decision, ())


def obstacle(context: situation.Situation) -> Message | None:
    """Say why policies could not name the callers of the model; None: nothing is known."""
    if context.data_plane != "ambient":
        return None
    namespace = context.cluster.get(cluster.NAMESPACE, context.model)
    waypoint = cluster.at(namespace, "metadata", "labels").get(names.USE_WAYPOINT, "none")
    if waypoint == "none":
        return None
    return Said.WAYPOINT_HIDES_CALLERS(
        waypoint=waypoint,
        application=context.application,
        mode=context.config.authorization,
        namespace=context.model,
    )
