"""Who may call the model's applications: policies written, and taken back."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence

import ops

from integrator_contract import names
from istio_integrator import parts, statuses, texts
from istio_integrator.config import config
from istio_integrator.ingress import exposure
from istio_integrator.kube import cluster, errors, owners, snapshot
from istio_integrator.relations import endpoints, service_mesh
from istio_integrator.security import policies, policies_layer4, policies_survey
from istio_integrator.security.policies_book import Rule
from istio_integrator.security.policies_judged import CLOSED, FOLDER

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


class Authorization:
    """Answers applications on `service-mesh`, and holds their callers to what they said."""

    def __init__(
        self,
        context: parts.Context,
        related: endpoints.Relations,
        seen: snapshot.Snapshot,
        ingress: exposure.Ingress,
    ) -> None:
        self._context = context
        self._related = related
        self._seen = seen
        self._ingress = ingress
        self._statuses: list[ops.StatusBase] = []

    def reconcile(self) -> None:
        """Make the policies be as relations and the option say.

        Who may call is let in before anybody is shut out, and is shut out no more before the
        first loses its rule.
        """
        self._statuses = []
        context = self._context
        if not context.leader:
            return
        self._answer()
        if context.config.authorization == "off":
            self._give_back()
        elif reason := obstacle(context):
            self._give_back()
            self._statuses.append(ops.BlockedStatus(reason))
        elif context.mesh is not None:
            decision, more = decided(context, self.asked(context.config))
            self._tell_of_requests(more)
            self._write(decision)

    def remove(self) -> None:
        """Give everything back."""
        self._statuses = []
        self._give_back()

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say whose callers are held to what, or what it takes."""
        return tuple(self._statuses)

    def asked(self, options: config.Config) -> policies.Asked:
        """Look at everything that is decided by; nothing is written.

        Args:
            options: Those that are asked about, which need not be the application's own.
        """
        context = dataclasses.replace(self._context, config=options)
        return policies_survey.asked(context, self._related, self._seen, self._ingress)

    def _answer(self) -> None:
        """Tell applications which labels join: none where their namespace is a member anyway."""
        labels: Mapping[str, str] | None = {}
        if self._context.config.membership == "selected":
            labels = self._context.pod_labels
        # Labels that were told stay: without them pods would leave the mesh.
        if labels is not None:
            service_mesh.answer(self._related, labels=labels)

    def _tell_of_requests(self, workloads: Sequence[str]) -> None:
        """Say whose callers are named by what ztunnel does not look at."""
        for each in workloads:
            logger.info("Callers of %s: what is said of their requests needs a waypoint.", each)
        if workloads:
            said = f"requests to {len(workloads)} of them are ignored (they need a waypoint)"
            self._statuses.append(ops.ActiveStatus(said))

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

    def _write(self, decision: policies.Decision) -> None:
        context = self._context
        if not decision.is_closed:
            context.manifests.remove(CLOSED)
        wanted = [Written.of(each, context.application) for each in decision.policies]
        refused = self._apply(wanted)
        if decision.is_closed:
            name = owners.object_name(context.application, "closed")
            context.manifests.apply(CLOSED, ClosedContext(name=name))
        problems = [*(f"authorization: {each}" for each in decision.problems), *refused]
        self._report(decision, problems, len(wanted) - len(refused))

    def _apply(self, wanted: list[Written]) -> list[str]:
        """Write policies but for those that the API server refuses; say why it does."""
        refused = self._context.manifests.apply_fitting(
            FOLDER, {one.name: [one] for one in wanted}, lambda fit: Context(policies=fit)
        )
        return [
            statuses.about(error, f"AuthorizationPolicy {name} in {self._context.model}")
            for name, error in refused.items()
        ]

    def _report(self, decision: policies.Decision, problems: list[str], count: int) -> None:
        for problem in problems:
            logger.warning("%s.", problem)
        for text in problems[:_MOST_TOLD]:
            self._statuses.append(ops.BlockedStatus(texts.plain(text, texts.LONGEST_PROBLEM)))
        for text in decision.waiting[:_MOST_TOLD]:
            said = texts.plain(f"authorization: {text}", texts.LONGEST_PROBLEM)
            self._statuses.append(ops.WaitingStatus(said))
        whom = f"{count} workload{'' if count == 1 else 's'}"
        rest = ", all others closed" if decision.is_closed else ""
        self._statuses.append(ops.ActiveStatus(f"callers named for {whom}{rest}"))


def decided(
    context: parts.Context, asked: policies.Asked
) -> tuple[policies.Decision, Sequence[str]]:
    """Decide who may call whom, as far as the model's data plane can tell.

    Returns:
        The decision, and the workloads of which more was said than that.
    """
    decision = policies.decide(asked)
    return policies_layer4.reduced(decision) if context.data_plane == "ambient" else (decision, ())


def obstacle(context: parts.Context) -> str:
    """Say why callers of the model could not be held by their names; empty if nothing is seen."""
    if context.data_plane != "ambient":
        return ""
    namespace = context.cluster.get(cluster.NAMESPACE, context.model)
    waypoint = cluster.at(namespace, "metadata", "labels").get(names.USE_WAYPOINT, "none")
    if waypoint == "none":
        return ""
    return (
        f"waypoint {waypoint} hides the callers; "
        f"run: juju config {context.application} authorization=off; "
        f"authorization={context.config.authorization} names callers, and in namespace "
        f"{context.model} the waypoint calls in their place"
    )
