"""The component that writes and removes the model's AuthorizationPolicies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from integrator_contract import names
from istio_integrator import error_messages
from istio_integrator.component import Component
from istio_integrator.config import config
from istio_integrator.kube import cluster, manifests, owners
from istio_integrator.messages import Message, Template
from istio_integrator.policies import decide, preview
from istio_integrator.policies.callers import CLOSED, FOLDER
from istio_integrator.relations import service_mesh
from istio_integrator.situation import model


class Authorization(Component):
    """Answers applications on `service-mesh`, and writes the policies that they request."""

    name = "security"

    def reconcile(self) -> list[Message]:
        """Make the policies agree with relations and the option.

        The policies with rules are written before the policy that denies all other calls, and
        removed after it.
        """
        situation = self._situation
        if not situation.leader:
            return []
        self._publish_labels()
        if situation.config.authorization == "off":
            self.remove()
        elif reason := self._find_obstacle(situation.config.authorization):
            self.remove()
            return [reason]
        elif self._facts.mesh is not None:
            return self._apply_policies(decide.decide(self.read_input(situation.config)))
        return []

    def remove(self) -> None:
        """Delete the policies, first the one that denies all other calls."""
        for folder in (CLOSED, FOLDER):
            self._situation.manifests.remove(folder)

    def preview(self, options: config.Config) -> Iterable[Message]:
        """Report the calls that other options would deny; nothing is written."""
        situation, mesh = self._situation, self._facts.mesh
        if options.authorization == "off":
            yield Template.OPTION_WRITES_NOTHING(
                option="authorization=off", kind="AuthorizationPolicy"
            )
        elif mesh is None:
            yield Template.PREVIEW_WITHOUT_ISTIO()
        elif reason := self._find_obstacle(options.authorization):
            yield reason
        else:
            asked = self.read_input(options)
            decision = decide.decide(asked)
            variables = _make_variables(decision.policies, situation.application)
            would_be = [
                situation.manifests.add_ownership(folder, obj)
                for folder in ((FOLDER, CLOSED) if decision.is_closed else (FOLDER,))
                for obj in manifests.render(folder, variables)
            ]
            yield from preview.preview(situation, mesh, asked, decision, would_be)

    def read_input(self, options: config.Config) -> decide.PolicyInput:
        """Read the input of the decision, with options that may differ from the application's."""
        situation, name, related = self._situation, self._situation.model, self._situation.related
        stated = situation.cluster.list(cluster.AUTHORIZATION_POLICY, name)
        calling = (
            each for kind in model.CALLING for each in situation.cluster.list_if_allowed(kind)
        )
        return decide.PolicyInput(
            mode=options.authorization,
            model=self._facts.model,
            exposure=self._facts.exposure,
            consumers=service_mesh.read_requests(related, model=name),
            calls=model.list_calls(calling, model=name),
            others=[each for each in stated if not situation.manifests.is_ours(each)],
            standing=[each for each in stated if situation.manifests.is_ours(each)],
            is_ambient=self._facts.data_plane == "ambient",
        )

    def _find_obstacle(self, mode: str) -> Message | None:
        """Return why policies could not match the callers of the model."""
        situation = self._situation
        if self._facts.data_plane != "ambient":
            return None
        namespace = situation.cluster.get(cluster.NAMESPACE, situation.model)
        waypoint = model.read_waypoint(cluster.at(namespace, "metadata", "labels"))
        if not waypoint:
            return None
        return Template.WAYPOINT_HIDES_CALLERS(
            waypoint=waypoint,
            application=situation.application,
            mode=mode,
            namespace=situation.model,
        )

    def _publish_labels(self) -> None:
        """Send applications the labels that make pods members; none if the namespace is one."""
        is_selected = self._situation.config.membership == "selected"
        labels = self._facts.member_pod_labels if is_selected else dict[str, str]()
        # Labels that were sent earlier are kept. Without them pods would leave the mesh.
        if labels is not None:
            service_mesh.publish_labels(self._situation.related, labels=labels)

    def _apply_policies(self, decision: decide.AuthorizationPlan) -> list[Message]:
        situation = self._situation
        if not decision.is_closed:
            situation.manifests.remove(CLOSED)
        wanted = {_name_policy(each, situation.application): [each] for each in decision.policies}
        # If the API server rejects one policy, the others are still written.
        refused = situation.manifests.apply_accepted(
            FOLDER, wanted, lambda fit: _make_variables(fit, situation.application)
        )
        if decision.is_closed:
            situation.manifests.apply(CLOSED, _make_variables((), situation.application))
        count = len(wanted) - len(refused)
        workloads = f"{count} workload{'' if count == 1 else 's'}"
        rest = ", all others closed" if decision.is_closed else ""
        beyond = [Template.REQUESTS_NEED_WAYPOINT(count=len(decision.unenforced))]
        return [
            *decision.messages,
            *(
                error_messages.explain_refused_object(
                    error, f"AuthorizationPolicy {name} in {situation.model}"
                )
                for name, error in refused.items()
            ),
            Template.CALLERS_NAMED(workloads=workloads, rest=rest),
            *(beyond if decision.unenforced else ()),
        ]


def _make_variables(policies: Iterable[decide.WorkloadPolicy], application: str) -> dict[str, Any]:
    return {
        "name": names.name_object(application, "closed"),
        "policies": [
            {
                "name": _name_policy(each, application),
                "labels": dict(sorted(each.selector)),
                "rules": each.rules,
            }
            for each in policies
        ],
    }


def _name_policy(policy: decide.WorkloadPolicy, application: str) -> str:
    labels = dict(sorted(policy.selector))
    shown = labels.get(names.NAME) or next(iter(labels.values()))
    return owners.name_by_pods(application, shown, policy.selector)
