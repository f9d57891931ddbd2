"""The mesh membership of the model's namespace: its labels, and the record to undo them."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from integrator_contract import names, pods, selectors
from istio_integrator import error_messages
from istio_integrator.istio import ambient, meshconfig
from istio_integrator.kube import cluster, errors, fences, owners
from istio_integrator.membership import decision
from istio_integrator.messages import Message, Said
from istio_integrator.situation.situation import Component, Situation

logger = logging.getLogger(__name__)


class Membership(Component):
    """Makes the model's namespace a mesh member, and records how to undo it."""

    name = "membership"

    def __init__(
        self, situation: Situation, are_pods_prepared: Callable[[], bool] = lambda: True
    ) -> None:
        self._situation = situation
        self._are_pods_prepared = are_pods_prepared
        self._decision = decision.LabelChange()

    @property
    def joined(self) -> bool:
        """Whether new pods join the mesh and no other integrator serves the model."""
        return self._decision.joined

    def claim(self) -> Message | None:
        """Record that this application serves the model.

        Returns:
            The reason against it: a controller model, or another integrator serves the model.
        """
        situation = self._situation
        namespace = self._namespace()
        if namespace is None:
            return None
        if names.CONTROLLER_MODEL in cluster.at(namespace, "metadata", "labels"):
            return Said.CONTROLLER_MODEL()
        record = self._record(namespace) or owners.UndoRecord(situation.manifests.owner, {}, {})
        if record.owner != situation.manifests.owner:
            return Said.MODEL_TAKEN(
                owner=record.owner, namespace=situation.model, application=situation.application
            )
        if situation.leader and record != _written(namespace):
            # A single integrator works without the record.
            with situation.cluster.optional():
                self._patch(namespace, {}, record)
        return None

    def reconcile(self) -> list[Message]:
        """Set the labels, or restore them if the options ask for no membership.

        Returns:
            The problem that keeps the namespace out of the mesh, if any.
        """
        namespace = self._namespace()
        if namespace is None:
            return []
        self._decision = self.decided(namespace)
        if self._situation.leader:
            self._bring_about(namespace)
        return [*filter(None, [self._decision.problem])]

    def _bring_about(self, namespace: cluster.Object) -> None:
        decided = self._decision
        is_ambient = decided.joined and decided.data_plane == "ambient"
        if is_ambient:
            # Label the excluded pods before the namespace joins.
            self._keep_out(is_ambient=True)
        if decided.labels or decided.record != _written(namespace):
            self._patch(namespace, decided.labels, decided.record)
        if not is_ambient:
            self._keep_out(is_ambient=False)

    def decided(self, namespace: cluster.Object) -> decision.LabelChange:
        """Decide the membership of the model's namespace, without writing."""
        mesh, membership = self._situation.mesh, self._situation.config.membership
        place = self._place(namespace)
        # Labels that this event restores are gone at the next event.
        left = place.labels if membership == "namespace" else place.left
        data_plane, missing = self._asked_for(left)
        member_labels = mesh.namespace_labels if mesh else None
        if mesh and data_plane == "ambient":
            member_labels = names.AMBIENT
        awaited = ""
        if mesh is None or not mesh.alive:
            awaited = "istiod has injected a dry-run pod"
        elif data_plane == "sidecar" and not self._are_pods_prepared():
            # Juju's modeloperator would get a sidecar.
            awaited = "the admission webhook prepares new pods"
        if membership != "none":
            set_here = (member_labels or {}) if membership == "namespace" else {}
            missing = missing or self._unserved({**place.labels, **set_here})
        return dataclasses.replace(
            place,
            membership=membership,
            member_labels=member_labels,
            data_plane=data_plane,
            missing=missing,
            awaited=awaited,
            is_member=mesh.has_member if mesh else place.is_member,
        ).decide()

    def _place(self, namespace: cluster.Object) -> decision.ModelNamespace:
        return decision.ModelNamespace(
            name=self._situation.model,
            labels=cluster.at(namespace, "metadata", "labels"),
            record=self._record(namespace),
            owner=self._situation.manifests.owner,
            now=int(time.time()),
        )

    def _unserved(self, labels: Mapping[str, str]) -> Message | None:
        """Return the message about the label that istiod's discoverySelectors require.

        istiod's injector ignores discoverySelectors: the model's pods would get sidecars that wait
        forever for the root certificate.
        """
        mesh, model = self._situation.mesh, self._situation.model
        label = meshconfig.unserved(mesh.discovery_selectors, labels) if mesh else ""
        if mesh is None or not label:
            return None
        return Said.MODEL_IGNORED_BY_ISTIOD(istiod=mesh.name, namespace=model, label=label)

    def _asked_for(self, labels: Mapping[str, str]) -> tuple[pods.DataPlane, Message | None]:
        situation = self._situation
        mode = situation.config.mesh_mode
        if not ambient.is_chosen(mode, labels):
            return "sidecar", None
        missing: Message | None = None
        try:
            mesh = situation.mesh
            if lack := ambient.missing(situation.cluster, mesh) if mesh else "":
                about = {"mode": mode, "lack": lack, "application": situation.application}
                missing = Said.AMBIENT_LACKS(namespace=situation.model, **about)
        except errors.ForbiddenError as error:
            # A namespace in ambient mode stays in it. Without the check no namespace joins it.
            if not ambient.is_labelled(labels):
                missing = error_messages.of_error(error, application=situation.application)
        return "ambient", missing

    def remove(self) -> None:
        """Restore the namespace and its pods, on any unit."""
        namespace = self._namespace()
        if namespace is None:
            return
        place = self._place(namespace)
        if place.record is not None and place.record.owner == place.owner:
            self._patch(namespace, place.given_back, None)
        self._keep_out(is_ambient=False)

    def _keep_out(self, *, is_ambient: bool) -> None:
        """Label the running pods that stay outside of ambient mode, and unlabel the others.

        Istio's node agent follows the label (istio cni/pkg/nodeagent, informers.go). API servers
        call Juju's modeloperator and our webhook in plain text, which policies may forbid inside
        of the mesh.
        """
        situation, key = self._situation, names.DATAPLANE_MODE
        excluded = selectors.parse(situation.config.excluded_pods)
        record = owners.UndoRecord(situation.manifests.owner, names.OUT_OF_AMBIENT, {key: None})
        ours = record.written()
        labelled = None if is_ambient else names.OUT_OF_AMBIENT
        for pod in situation.cluster.list(cluster.POD, situation.model, labelled):
            reference = cluster.reference(pod)
            with fences.around(reference):
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
                    fences.note(reference, str(error))

    def _namespace(self) -> cluster.Object | None:
        return self._situation.cluster.get(cluster.NAMESPACE, self._situation.model)

    def _record(self, namespace: cluster.Object) -> owners.UndoRecord | None:
        """Read the record, and take over the record of a removed application."""
        record, situation = _written(namespace), self._situation
        own = situation.manifests.owner
        if record and record.owner != own and owners.is_gone(situation.cluster, record.owner):
            return msgspec.structs.replace(record, owner=own)
        return record

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
                "annotations": {names.MEMBERSHIP: record.written() if record else None},
            }
        }
        # Juju or another integrator may have written in between: after a conflict the charm
        # decides again.
        self._situation.cluster.merge_patch(namespace, patch)
        if labels:
            logger.info("Namespace %s: labels %s.", self._situation.model, dict(labels))


def data_plane(situation: Situation) -> pods.DataPlane:
    """Return how the model's pods join the mesh once its namespace is reconciled."""
    namespace = situation.cluster.get(cluster.NAMESPACE, situation.model)
    return Membership(situation).decided(namespace).data_plane if namespace else "sidecar"


def _written(namespace: cluster.Object) -> owners.UndoRecord | None:
    return owners.UndoRecord.read(
        cluster.at(namespace, "metadata", "annotations").get(names.MEMBERSHIP)
    )
