"""What new pods get: what the operator asks for, and what the mesh can do."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from integrator_contract import names, pods
from istio_integrator.istio import installation
from istio_integrator.kube import cluster
from istio_integrator.situation import situation

_DNS = 53
_Ports = tuple[Annotated[int, msgspec.Meta(ge=1, le=pods.HIGHEST_PORT)], ...]


class MeshSettings(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What new pods get that depends on the mesh, as an annotation keeps it."""

    native: bool = False
    inject_label: tuple[str, str] = (names.INJECT, "true")
    istiod_namespace: str = ""
    controller_ports: _Ports = ()
    """That charms need to reach Juju's controller, as far as the mesh would keep them from it."""
    mesh_ports: _Ports = ()
    """That the mesh excludes everywhere, but for pods that name ports: they name these too."""
    held: bool = False
    """Whether the mesh holds applications by itself, so that no pod needs to ask for it."""

    @classmethod
    def of(cls, scope: situation.Situation, before: MeshSettings | None) -> MeshSettings:
        """Keep what was seen last as far as the mesh can't be asked: it may be back soon."""
        mesh = scope.mesh
        seen = before or cls()
        if mesh is not None:
            is_known = mesh.probed or before is None
            seen = cls(
                native=mesh.native_sidecars if is_known else seen.native,
                inject_label=next(iter((scope.pod_labels or mesh.pod_labels).items())),
                istiod_namespace=mesh.installed_in,
                controller_ports=_cut_off(scope, mesh) if is_known else seen.controller_ports,
                mesh_ports=mesh.excluded_outbound_ports if is_known else seen.mesh_ports,
                held=mesh.hold_by_default if is_known or mesh.has_settings else seen.held,
            )
        if scope.config.job_sidecars == "classic":
            return msgspec.structs.replace(seen, native=False)
        return seen

    @classmethod
    def read(cls, obj: cluster.Object | None) -> MeshSettings | None:
        """Read what an applied object says; None if it says nothing that can be understood."""
        text = cluster.at(obj, "metadata", "annotations").get(names.SEEN)
        try:
            return msgspec.json.decode(text or "", type=cls)
        except (ValueError, RecursionError):
            return None

    def text(self) -> str:
        """Write it for `read`."""
        return msgspec.json.encode(self).decode()


def _cut_off(scope: situation.Situation, found: installation.Mesh) -> tuple[int, ...]:
    """Return the ports that charms need and that the mesh cuts off."""
    ports = scope.controller.ports if found.cuts_off_controller else ()
    if scope.controller.is_named and found.cuts_off_names:
        ports = (*ports, _DNS)
    return tuple(port for port in ports if port not in found.excluded_outbound_ports)


def make(
    context: situation.Situation, seen: MeshSettings, left_out: Iterable[str]
) -> pods.Settings:
    """Gather what new pods get: options of the same names, and what was seen of the mesh.

    `left_out` are changes of pods that admission control of another team rejects.
    """
    options = context.config
    membership = options.membership
    namespace = context.cluster.get(cluster.NAMESPACE, context.model)
    labels = cluster.at(namespace, "metadata", "labels")
    ports = options.excluded_outbound_ports
    is_ambient = context.data_plane == "ambient"
    if seen.controller_ports and not is_ambient:
        # Juju labels the pods of its applications so; all of them call the controller.
        ports = (*ports, pods.Ports(pods=names.NAME, ports=seen.controller_ports))
    chosen: dict[str, Any] = {
        **options.named_in(pods.Settings),
        # The option of this name is Istio's revision.
        "revision": "",
        "included_pods": options.included_pods if membership == "selected" else "",
        "hold_application": options.hold_application and not seen.held,
        "excluded_outbound_ports": tuple(rule.beside(seen.mesh_ports) for rule in ports),
    }
    settings = pods.Settings(
        model=context.model,
        application=context.application,
        membership=membership,
        data_plane=context.data_plane,
        lifecycle_in_model=context.served.kind_of(context.model, labels) == "model",
        inject_label=dict([seen.inject_label]),
        mesh_holds=seen.held,
        native=seen.native,
        left_out=tuple(sorted(left_out)),
        **chosen,
    )
    return revised(settings)


def revised(settings: pods.Settings) -> pods.Settings:
    """Name settings by all that they say."""
    values = settings.document()
    del values["revision"]
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return dataclasses.replace(settings, revision=digest[:16])
