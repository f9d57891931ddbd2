"""The mesh membership of the model's namespace: its labels, and the record to undo them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from integrator_contract import names, selectors
from istio_integrator.asked import membership
from istio_integrator.component import Component
from istio_integrator.facts import Facts
from istio_integrator.kube import cluster, errors, fences, owners
from istio_integrator.messages import Message, Template

logger = logging.getLogger(__name__)


class Membership(Component):
    """Makes the model's namespace a mesh member, and records how to undo it.

    `are_pods_prepared` tells whether the admission webhook prepares new pods.
    """

    name = "membership"

    def __init__(self, facts: Facts, *, are_pods_prepared: bool = True) -> None:
        super().__init__(facts)
        self._are_pods_prepared = are_pods_prepared
        self.joined = False
        """Whether new pods join the mesh and no other integrator serves the model."""

    def claim(self) -> Message | None:
        """Record that this application serves the model, or return the reason against it."""
        situation = self._situation
        namespace = self._read_namespace()
        if namespace is None:
            return None
        if names.CONTROLLER_MODEL in cluster.at(namespace, "metadata", "labels"):
            return Template.CONTROLLER_MODEL()
        record = membership.read(situation, namespace).record
        record = record or owners.UndoRecord(situation.manifests.owner, {}, {})
        if record.owner != situation.manifests.owner:
            return Template.MODEL_TAKEN(
                owner=record.owner, namespace=situation.model, application=situation.application
            )
        if situation.leader and record != membership.read_record(namespace):
            # A single integrator works without the record.
            with situation.cluster.skip_if_forbidden():
                self._patch(namespace, {}, record)
        return None

    def reconcile(self) -> list[Message]:
        """Set the labels, or restore them if the options ask for no membership."""
        namespace = self._read_namespace()
        if namespace is None:
            return []
        decided = membership.decide(
            self._situation,
            self._facts.mesh,
            namespace,
            are_pods_prepared=self._are_pods_prepared,
        )
        self.joined = decided.joined
        if self._situation.leader:
            self._apply_change(decided, namespace)
        return [*filter(None, [decided.problem])]

    def _apply_change(self, decided: membership.LabelChange, namespace: cluster.Object) -> None:
        is_ambient = decided.joined and decided.data_plane == "ambient"
        if is_ambient:
            # Label the excluded pods before the namespace joins.
            self._label_excluded_pods(is_ambient=True)
        if decided.labels or decided.record != membership.read_record(namespace):
            self._patch(namespace, decided.labels, decided.record)
        if not is_ambient:
            self._label_excluded_pods(is_ambient=False)

    def remove(self) -> None:
        """Restore the namespace and its pods, on any unit."""
        namespace = self._read_namespace()
        if namespace is None:
            return
        present = membership.read(self._situation, namespace)
        if present.record is not None and present.record.owner == present.owner:
            self._patch(namespace, present.undo_patch, None)
        self._label_excluded_pods(is_ambient=False)

    def _label_excluded_pods(self, *, is_ambient: bool) -> None:
        """Label the running pods that stay outside of ambient mode, and unlabel the others.

        Istio's node agent follows the label (istio cni/pkg/nodeagent, informers.go). API servers
        call Juju's modeloperator and our webhook in plain text, which policies may forbid inside
        of the mesh.
        """
        situation, key = self._situation, names.DATAPLANE_MODE
        excluded = selectors.parse(situation.config.excluded_pods)
        record = owners.UndoRecord(situation.manifests.owner, names.OUT_OF_AMBIENT, {key: None})
        ours = record.encode()
        labelled = None if is_ambient else names.OUT_OF_AMBIENT
        for pod in situation.cluster.list(cluster.POD, situation.model, labelled):
            reference = cluster.reference(pod)
            with fences.isolate(reference):
                labels = cluster.at(pod, "metadata", "labels")
                is_ours = cluster.at(pod, "metadata", "annotations").get(names.MEMBERSHIP) == ours
                has_ended = cluster.at(pod, "status").get("phase") in ("Succeeded", "Failed")
                stays_out = is_ambient and (
                    names.is_machinery(labels, situation.application)
                    or selectors.matches(excluded, labels)
                )
                if stays_out and key not in labels and not has_ended:
                    mode, written = names.OUT_OF_AMBIENT[key], ours
                elif is_ours and not stays_out and labels.items() >= names.OUT_OF_AMBIENT.items():
                    mode = written = None
                else:
                    continue
                metadata = {"labels": {key: mode}, "annotations": {names.MEMBERSHIP: written}}
                try:
                    situation.cluster.merge_patch(pod, {"metadata": metadata})
                    logger.info("%s: %s=%s.", reference, key, mode)
                except errors.ApiError as error:
                    # The pod is gone, or admission control rejects the patch: go on with the
                    # others.
                    fences.note_skipped(reference, str(error))

    def _read_namespace(self) -> cluster.Object | None:
        return self._situation.cluster.get(cluster.NAMESPACE, self._situation.model)

    def _patch(
        self,
        namespace: cluster.Object,
        labels: Mapping[str, Any],
        record: owners.UndoRecord | None,
    ) -> None:
        patch: cluster.Object = {
            "metadata": {
                "resourceVersion": namespace["metadata"]["resourceVersion"],
                "labels": dict(labels),
                "annotations": {names.MEMBERSHIP: record.encode() if record else None},
            }
        }
        # Juju or another integrator may have written in between: after a conflict the charm
        # decides again.
        self._situation.cluster.merge_patch(namespace, patch)
        if labels:
            logger.info("Namespace %s: labels %s.", self._situation.model, dict(labels))
