"""The model's namespace as a member of the mesh: its label, and the record that undoes it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from integrator_contract import names, pods, selectors
from istio_integrator import error_messages
from istio_integrator.istio import ambient, meshconfig
from istio_integrator.kube import cluster, errors, fences, owners
from istio_integrator.membership import decision
from istio_integrator.messages import Message, Said
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)


class Membership(situation.Component):
    """Makes the model's namespace a member, and remembers how to undo it."""

    name = "membership"

    def __init__(
        self, context: situation.Situation, are_pods_prepared: Callable[[], bool] = lambda: True
    ) -> None:
        self._context = context
        self._are_pods_prepared = are_pods_prepared
        self._decision = decision.LabelChange()

    @property
    def joined(self) -> bool:
        """Whether new pods of the model are asked to join, and no other integrator sees to it."""
        return self._decision.joined

    def claim(self) -> Message | None:
        """Record that this application serves the model.

        Returns:
            Why it may not: the model is a controller's, or another integrator serves it already.
        """
        context = self._context
        namespace = self._namespace()
        if namespace is None:
            return None
        if names.CONTROLLER_MODEL in cluster.at(namespace, "metadata", "labels"):
            return Said.CONTROLLER_MODEL()
        record = self._record(namespace) or owners.UndoRecord(context.manifests.owner, {}, {})
        if record.owner != context.manifests.owner:
            return Said.MODEL_TAKEN(namespace=context.model, owner=record.owner)
        if context.leader and record != _written(namespace):
            # One integrator needs no record.
            with context.cluster.optional():
                self._patch(namespace, {}, record)
        return None

    def reconcile(self) -> list[Message]:
        """Set the label, or give it back where the option asks for no membership.

        Returns:
            What keeps the namespace out of the mesh.
        """
        namespace = self._namespace()
        if namespace is None:
            return []
        self._decision = self.decided(namespace)
        if self._context.leader:
            self._bring_about(namespace)
        return [*filter(None, [self._decision.problem])]

    def _bring_about(self, namespace: cluster.Object) -> None:
        decided = self._decision
        is_ambient = decided.joined and decided.data_plane == "ambient"
        if is_ambient:
            # Before the others join.
            self._keep_out(is_ambient=True)
        if decided.labels or decided.record != _written(namespace):
            self._patch(namespace, decided.labels, decided.record)
        if not is_ambient:
            self._keep_out(is_ambient=False)

    def decided(self, namespace: cluster.Object) -> decision.LabelChange:
        """Decide what the options and the mesh make of the model's namespace; write nothing."""
        mesh, membership = self._context.mesh, self._context.config.membership
        place = self._place(namespace)
        # Of labels that are given back nothing is to be seen at the next event.
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
            name=self._context.model,
            labels=cluster.at(namespace, "metadata", "labels"),
            record=self._record(namespace),
            owner=self._context.manifests.owner,
        )

    def _unserved(self, labels: Mapping[str, str]) -> Message | None:
        """Say how to have istiod serve the namespace, where its discoverySelectors leave it out.

        istiod's injector does not follow them: the model's pods would get sidecars that wait
        forever for the root certificate.
        """
        mesh, model = self._context.mesh, self._context.model
        label = meshconfig.unserved(mesh.discovery_selectors, labels) if mesh else ""
        if mesh is None or not label:
            return None
        return Said.MODEL_IGNORED_BY_ISTIOD(istiod=mesh.name, namespace=model, label=label)

    def _asked_for(self, labels: Mapping[str, str]) -> tuple[pods.DataPlane, Message | None]:
        context = self._context
        mode = context.config.mesh_mode
        if not ambient.is_chosen(mode, labels):
            return "sidecar", None
        missing: Message | None = None
        try:
            if lack := ambient.missing(context.cluster, context.mesh) if context.mesh else "":
                missing = Said.AMBIENT_LACKS(namespace=context.model, mode=mode, lack=lack)
        except errors.ForbiddenError as error:
            # A namespace that is in ambient mode stays so; none is brought there unseen.
            if not ambient.is_labelled(labels):
                missing = error_messages.of_error(error, application=context.application)
        return "ambient", missing

    def remove(self) -> None:
        """Give the namespace and its pods back as they were, whoever leads."""
        namespace = self._namespace()
        if namespace is None:
            return
        place = self._place(namespace)
        if place.record is not None and place.record.owner == place.owner:
            self._patch(namespace, place.given_back, None)
        self._keep_out(is_ambient=False)

    def _keep_out(self, *, is_ambient: bool) -> None:
        """Label the running pods that stay outside of ambient mode, and no other pod.

        Istio's node agent follows the label (istio cni/pkg/nodeagent, informers.go). API servers
        call Juju's modeloperator and our webhook in plain text, which policies may forbid inside
        of the mesh.
        """
        context, key = self._context, names.DATAPLANE_MODE
        excluded = selectors.parse(context.config.excluded_pods)
        record = owners.UndoRecord(context.manifests.owner, names.OUT_OF_AMBIENT, {key: None})
        ours = record.written()
        labelled = None if is_ambient else names.OUT_OF_AMBIENT
        for pod in context.cluster.list(cluster.POD, context.model, labelled):
            reference = cluster.reference(pod)
            with fences.around(reference):
                labels = cluster.at(pod, "metadata", "labels")
                is_ours = cluster.at(pod, "metadata", "annotations").get(names.MEMBERSHIP) == ours
                has_ended = cluster.at(pod, "status").get("phase") in ("Succeeded", "Failed")
                stays_out = is_ambient and (
                    names.is_machinery(labels, context.application)
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
                    context.cluster.merge_patch(pod, {"metadata": metadata})
                    logger.info("%s: %s=%s.", reference, key, mode)
                except errors.ApiError as error:
                    # It has gone, or somebody's admission refuses it: the others are labelled.
                    fences.note(reference, str(error))

    def _namespace(self) -> cluster.Object | None:
        return self._context.cluster.get(cluster.NAMESPACE, self._context.model)

    def _record(self, namespace: cluster.Object) -> owners.UndoRecord | None:
        """Read the record; that of an application which is no more has become ours."""
        record, own = _written(namespace), self._context.manifests.owner
        if record and record.owner != own and owners.is_gone(self._context.cluster, record.owner):
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
        # What to do depends on what Juju, or another integrator, wrote in between: a conflict has
        # the charm decide again.
        self._context.cluster.merge_patch(namespace, patch)
        if labels:
            logger.info("Namespace %s: labels %s.", self._context.model, dict(labels))


def data_plane(context: situation.Situation) -> pods.DataPlane:
    """Tell what takes the model's pods into the mesh once its namespace is as it should be."""
    namespace = context.cluster.get(cluster.NAMESPACE, context.model)
    return Membership(context).decided(namespace).data_plane if namespace else "sidecar"


def _written(namespace: cluster.Object) -> owners.UndoRecord | None:
    return owners.UndoRecord.read(
        cluster.at(namespace, "metadata", "annotations").get(names.MEMBERSHIP)
    )
