"""The model's namespace as a member of the mesh: its label, and the record that undoes it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from integrator_contract import names, pods
from istio_integrator.istio import ambient, meshconfig
from istio_integrator.kube import cluster, errors, owners, records
from istio_integrator.membership import decision, kept_out
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
        self._decision = decision.Decision()

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
        record = self._record(namespace) or records.Record(context.manifests.owner, {}, {})
        if record.owner != context.manifests.owner:
            return decision.rival(context.model, record.owner)
        if context.leader and record != _written(namespace):
            try:
                self._patch(namespace, {}, record)
            except errors.ForbiddenError as error:
                # One integrator needs no record, so the right to write it is optional.
                logger.info("Model %s is served without a record: %s", context.model, error)
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
        is_ambient = self.joined and self._decision.data_plane == "ambient"
        if is_ambient:
            # Before the others join.
            kept_out.label(self._context, is_ambient=True)
        wanted = self._decision.record
        # By the record it is known that pods may have labels of ours, until they are given back.
        kept = wanted if is_ambient else _with_ambient(wanted, self._record(namespace))
        if self._decision.labels or kept != _written(namespace):
            namespace = self._patch(namespace, self._decision.labels, kept)
            if self._decision.log:
                logger.warning("%s.", self._decision.log)
        if not is_ambient and kept is not None and names.DATAPLANE_MODE in kept.before:
            kept_out.label(self._context, is_ambient=False)
            if kept != wanted:
                self._patch(namespace, {}, wanted)

    def decided(self, namespace: cluster.Object) -> decision.Decision:
        """Decide what the options and the mesh make of the model's namespace; write nothing."""
        mesh, membership = self._context.mesh, self._context.config.membership
        place = self._place(namespace)
        # Of labels that are given back nothing is to be seen at the next event.
        left = place.labels if membership == "namespace" else place.left()
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
        wanted = decision.Wanted(
            membership=membership,
            labels=member_labels,
            data_plane=data_plane,
            missing=missing,
            awaited=awaited,
            is_member=mesh.has_member if mesh else lambda _: False,
        )
        return decision.decide(place, wanted)

    def _place(self, namespace: cluster.Object) -> decision.Place:
        return decision.Place(
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
        """Tell what is to take pods into the mesh, and what the cluster lacks for it."""
        context = self._context
        mode = context.config.mesh_mode
        if not ambient.is_chosen(mode, labels):
            return "sidecar", None
        try:
            lack = ambient.missing(context.cluster, context.mesh, labels) if context.mesh else ""
        except errors.ForbiddenError:
            said = Said.AMBIENT_UNKNOWN(application=context.application, mode=mode)
            return "ambient", said
        if not lack:
            return "ambient", None
        return "ambient", Said.AMBIENT_LACKS(namespace=context.model, mode=mode, lack=lack)

    def remove(self) -> None:
        """Give the namespace back as it was, whoever leads."""
        namespace = self._namespace()
        if namespace is None:
            return
        place = self._place(namespace)
        if place.record is not None and place.record.owner == place.owner:
            self._patch(namespace, place.leave(), None)
            kept_out.label(self._context, is_ambient=False)

    def _namespace(self) -> cluster.Object | None:
        return self._context.cluster.get(cluster.NAMESPACE, self._context.model)

    def _record(self, namespace: cluster.Object) -> records.Record | None:
        """Read the record; that of an application which is no more has become ours."""
        record, own = _written(namespace), self._context.manifests.owner
        if record and record.owner != own and owners.is_gone(self._context.cluster, record.owner):
            return msgspec.structs.replace(record, owner=own)
        return record

    def _patch(
        self, namespace: cluster.Object, labels: Mapping[str, Any], record: records.Record | None
    ) -> cluster.Object:
        patch: cluster.Object = {
            "metadata": {
                "resourceVersion": namespace["metadata"]["resourceVersion"],
                "labels": dict(labels),
                "annotations": {names.MEMBERSHIP: record.written() if record else None},
            }
        }
        try:
            patched = self._context.cluster.merge_patch(namespace, patch)
        except errors.ConflictError:
            # Juju, or another integrator, wrote in between; what to do depends on what they wrote.
            logger.info(
                "Namespace %s changed meanwhile: the next event decides.", self._context.model
            )
            raise
        if labels:
            logger.info("Namespace %s: labels %s.", self._context.model, dict(labels))
        return patched


def data_plane(context: situation.Situation) -> pods.DataPlane:
    """Tell what takes the model's pods into the mesh once its namespace is as it should be."""
    namespace = context.cluster.get(cluster.NAMESPACE, context.model)
    return Membership(context).decided(namespace).data_plane if namespace else "sidecar"


def _with_ambient(
    record: records.Record | None, before: records.Record | None
) -> records.Record | None:
    """Keep in a record what an earlier one says of ambient mode."""
    if record is None or before is None or names.DATAPLANE_MODE not in before.before:
        return record
    said = {names.DATAPLANE_MODE: before.before[names.DATAPLANE_MODE]}
    return msgspec.structs.replace(record, before={**record.before, **said})


def _written(namespace: cluster.Object) -> records.Record | None:
    return records.Record.read(
        cluster.at(namespace, "metadata", "annotations").get(names.MEMBERSHIP)
    )
