"""The changes of new pods, from the operator's options and the mesh's abilities."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from typing import Annotated

import msgspec

from integrator_contract import names, pods
from istio_integrator.facts import Facts
from istio_integrator.istio import installation
from istio_integrator.kube import cluster
from istio_integrator.situation.situation import Situation

_DNS = 53
_Ports = tuple[Annotated[int, msgspec.Meta(ge=1, le=pods.HIGHEST_PORT)], ...]


class MeshSettings(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The settings of new pods that depend on the mesh, as stored in an annotation."""

    native: bool = False
    inject_label: tuple[str, str] = (names.INJECT, "true")
    istiod_namespace: str = ""
    controller_ports: _Ports = ()
    """Ports that charms need to reach Juju's controller and that the mesh would block."""
    mesh_ports: _Ports = ()
    """Ports that the mesh excludes for all pods. A pod's own list of ports replaces them, so it
    repeats them."""
    held: bool = False
    """Whether the mesh holds applications by default, so that pods need not ask for it."""

    @classmethod
    def from_facts(cls, facts: Facts, before: MeshSettings | None) -> MeshSettings:
        """Return the mesh's settings; keep earlier ones while istiod does not answer."""
        situation, mesh = facts.situation, facts.mesh
        seen = before or cls()
        if mesh is not None:
            is_known = mesh.proxy.probed or before is None
            seen = cls(
                native=mesh.native_sidecars if is_known else seen.native,
                inject_label=next(iter((facts.member_pod_labels or mesh.pod_labels).items())),
                istiod_namespace=mesh.injector.installed_in,
                controller_ports=_find_blocked_ports(situation, mesh)
                if is_known
                else seen.controller_ports,
                mesh_ports=mesh.proxy.excluded_outbound_ports if is_known else seen.mesh_ports,
                held=mesh.hold_by_default if is_known or mesh.settings.has_settings else seen.held,
            )
        if situation.config.job_sidecars == "classic":
            return msgspec.structs.replace(seen, native=False)
        return seen

    @classmethod
    def read(cls, obj: cluster.Object | None) -> MeshSettings | None:
        """Read the annotation of an applied object; None if it is missing or invalid."""
        text = cluster.at(obj, "metadata", "annotations").get(names.MESH_SETTINGS)
        try:
            return msgspec.json.decode(text or "", type=cls)
        except (ValueError, RecursionError):
            return None

    def encode(self) -> str:
        """Return the text for `read`."""
        return msgspec.json.encode(self).decode()


def _find_blocked_ports(situation: Situation, found: installation.Mesh) -> tuple[int, ...]:
    """Return the ports that charms need and that the mesh blocks."""
    ports = situation.controller.ports if found.cuts_off_controller else ()
    if situation.controller.is_named and found.cuts_off_names:
        ports = (*ports, _DNS)
    return tuple(port for port in ports if port not in found.proxy.excluded_outbound_ports)


def make_settings(facts: Facts, seen: MeshSettings, left_out: Iterable[str]) -> pods.Settings:
    """Return the settings of new pods, from the options and the mesh.

    `left_out` lists the changes that another team's admission control rejects.
    """
    situation, options = facts.situation, facts.situation.config
    membership = options.membership
    namespace = situation.cluster.get(cluster.NAMESPACE, situation.model)
    labels = cluster.at(namespace, "metadata", "labels")
    ports = options.excluded_outbound_ports
    is_ambient = facts.data_plane == "ambient"
    if seen.controller_ports and not is_ambient:
        # Juju sets this label on the pods of its applications, which all call the controller.
        ports = (*ports, pods.Ports(pods=names.NAME, ports=seen.controller_ports))
    settings = pods.Settings(
        model=situation.model,
        application=situation.application,
        membership=membership,
        included_pods=options.included_pods if membership == "selected" else "",
        excluded_pods=options.excluded_pods,
        data_plane=facts.data_plane,
        lifecycle_in_model=facts.served.find_kind(situation.model, labels) == "model",
        inject_label=dict([seen.inject_label]),
        hold_application=options.hold_application and not seen.held,
        mesh_holds=seen.held,
        native=seen.native,
        pod_traffic=options.pod_networks is not None,
        left_out=tuple(sorted(left_out)),
        pod_labels=options.pod_labels,
        pod_annotations=options.pod_annotations,
        excluded_outbound_ports=tuple(rule.merge(seen.mesh_ports) for rule in ports),
        image_registries=options.image_registries,
    )
    values = json.dumps(settings.to_document(), sort_keys=True)
    digest = hashlib.sha256(values.encode()).hexdigest()
    return dataclasses.replace(settings, digest=digest[:16])
