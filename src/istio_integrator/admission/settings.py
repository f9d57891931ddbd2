"""What new pods get: what the operator asks for, and what the mesh can do."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Annotated, Any, NamedTuple

import pydantic

from integrator_contract import bounded, names, pods
from integrator_contract.rejections import Rejections
from istio_integrator import parts
from istio_integrator.istio import installation
from istio_integrator.kube import cluster

_DNS = 53


_Ports = Annotated[tuple[int, ...], pydantic.Strict(False)]


class _Written(pydantic.BaseModel):
    """What `Seen.text` writes; what an earlier revision did not write yet has a default."""

    model_config = pydantic.ConfigDict(
        strict=True,
        alias_generator=lambda name: name.replace("_", "-"),
        defer_build=True,
    )

    native: bool
    inject_label: Annotated[tuple[str, str], pydantic.Strict(False)]
    istiod_namespace: str
    controller_ports: _Ports = ()
    mesh_ports: _Ports = ()
    held: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """What new pods get that depends on the mesh."""

    native: bool = False
    inject_label: tuple[str, str] = (names.INJECT, "true")
    istiod_namespace: str = ""
    controller_ports: tuple[int, ...] = ()
    """That charms need to reach Juju's controller, as far as the mesh would keep them from it."""
    mesh_ports: tuple[int, ...] = ()
    """That the mesh excludes everywhere, but for pods that name ports: they name these too."""
    held: bool = False
    """Whether the mesh holds applications by itself, so that no pod needs to ask for it."""

    @classmethod
    def of(cls, scope: parts.Context, before: Seen | None) -> Seen:
        """Keep what was seen last as far as the mesh can't be asked: it may be back soon."""
        mesh = scope.mesh
        seen = before or cls()
        if mesh is not None:
            is_known = mesh.probed or before is None
            seen = cls(
                native=mesh.native_sidecars if is_known else seen.native,
                inject_label=next(iter((scope.pod_labels or mesh.pod_labels).items())),
                istiod_namespace=mesh.installed_in,
                controller_ports=seen.controller_ports,
                mesh_ports=mesh.excluded_outbound_ports
                if is_known or mesh.has_values
                else seen.mesh_ports,
                held=mesh.hold_by_default if is_known or mesh.has_settings else seen.held,
            )
            if is_known:
                seen = dataclasses.replace(seen, controller_ports=_cut_off(scope, mesh))
        if scope.config.job_sidecars == "classic":
            return dataclasses.replace(seen, native=False)
        return seen

    @classmethod
    def read(cls, obj: cluster.Object | None) -> Seen | None:
        """Read what an applied object says; None if it says nothing that can be understood."""
        text = cluster.at(obj, "metadata", "annotations").get(names.SEEN)
        try:
            found = _Written.model_validate(bounded.read_json(text or "null"))
        except ValueError:
            return None
        values = found.model_dump()
        for name in ("controller_ports", "mesh_ports"):
            values[name] = tuple(filter(pods.is_port, values[name]))
        return cls(**values)

    def text(self) -> str:
        """Write it for `read`."""
        values = {key.replace("_", "-"): each for key, each in vars(self).items()}
        return json.dumps(values, sort_keys=True)


def _cut_off(scope: parts.Context, found: installation.Mesh) -> tuple[int, ...]:
    """Return the ports that charms need and that the mesh cuts off."""
    ports = scope.controller.ports if found.cuts_off_controller else ()
    if scope.controller.is_named and found.cuts_off_names:
        ports = (*ports, _DNS)
    return tuple(port for port in ports if port not in found.excluded_outbound_ports)


class Preparation(NamedTuple):
    """What new pods get, and what of it is the mesh's doing."""

    settings: pods.Settings
    seen: Seen

    @classmethod
    def of(
        cls,
        context: parts.Context,
        seen: Seen,
        *,
        lifecycle_in_model: bool,
        rejected: Rejections = Rejections(),  # noqa: B008 - it is frozen
    ) -> Preparation:
        """Gather what new pods get: options of the same names, and what was seen of the mesh."""
        options = context.config
        membership = options.membership
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
            lifecycle_in_model=lifecycle_in_model,
            inject_label=dict([seen.inject_label]),
            mesh_holds=seen.held,
            native=seen.native,
            left_out=tuple(sorted(rejected.changes)),
            **chosen,
        )
        return cls(revised(settings), seen)


def revised(settings: pods.Settings) -> pods.Settings:
    """Name settings by all that they say."""
    values = settings.document()
    del values["revision"]
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return dataclasses.replace(settings, revision=digest[:16])
