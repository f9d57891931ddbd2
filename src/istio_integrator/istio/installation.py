"""The Istio that a model joins, as discovery found it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from integrator_contract import names
from istio_integrator.istio import injectors, meshconfig, probe
from istio_integrator.messages import Message

_DISCOVERY_PORT = 15012


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh:
    """The control plane behind an injector."""

    injector: injectors.Injector
    settings: meshconfig.IstiodSettings
    """As objects of this cluster show them."""
    proxy: probe.ProbedProxy = dataclasses.field(default_factory=probe.ProbedProxy)
    """The proxy of new pods, as a dry-run pod showed it."""
    alive: bool = False
    """Whether the injector answers the dry-run pod, or without one has ready endpoints."""
    problem: str = ""
    """Why the injector does not inject."""
    remedy: str = ""
    """The command that fixes the problem; empty where none is known."""
    injectors: tuple[injectors.Injector, ...] = dataclasses.field(default=(), compare=False)
    """All injectors in the cluster, including those of other installations of Istio."""
    native_sidecars: bool = False
    """Whether pods that run to completion get native sidecars, by probe, nodes and option."""
    native_refused: bool = False
    """Whether another team's policy rejects the dry-run pod that asks for a native sidecar."""
    native_obstacle: Message | None = None
    """Why the option `job-sidecars` cannot have native sidecars."""

    @property
    def _shown_settings(self) -> meshconfig.IstiodSettings | probe.ProbedProxy:
        return self.settings if self.settings.has_settings else self.proxy

    @property
    def hold_by_default(self) -> bool:
        """Whether the mesh holds applications, so that pods need not ask for it."""
        return self._shown_settings.hold_by_default

    @property
    def status_port(self) -> int:
        """The status port of proxies whose pods set no other one; 0: disabled."""
        return self._shown_settings.status_port

    @property
    def cuts_off_controller(self) -> bool:
        """Whether the proxy would keep charms from Juju's controller.

        The controller may be outside of the mesh's registry, which `REGISTRY_ONLY` blocks.
        """
        return self.proxy.captures_outbound and (
            self.settings.registry_only or self._redirects_before_proxy
        )

    @property
    def cuts_off_names(self) -> bool:
        """Whether the proxy would keep init containers of charms from DNS."""
        return self.proxy.captures_names and self._redirects_before_proxy

    @property
    def _redirects_before_proxy(self) -> bool:
        """Whether the CNI plugin redirects init containers to a proxy that starts after them."""
        return self.proxy.cni and not self.proxy.native_proxy

    @property
    def namespace_labels(self) -> dict[str, str]:
        """The label that makes a namespace a member."""
        if self.injector.is_default:
            return {names.INJECTION: "enabled"}
        return {names.REVISION: self.injector.revision}

    @property
    def pod_labels(self) -> dict[str, str]:
        """The label that makes one pod a member in a namespace that is not a member."""
        return {names.INJECT: "true"} if self.injector.is_default else self.namespace_labels

    def has_member(self, labels: Mapping[str, str]) -> bool:
        """Tell whether this Istio injects into pods of a namespace with these labels."""
        found = injectors.find_injecting(self.injectors, labels)
        return found is not None and found.istiod == self.injector.istiod

    @property
    def pilot(self) -> tuple[str, int] | None:
        """The host and port from which proxies get their configuration; None: not known."""
        if self.injector.namespace:
            return f"{self.injector.service}.{self.injector.namespace}.svc", _DISCOVERY_PORT
        host, _, port = self.proxy.discovery_address.rpartition(":")
        return (host, int(port)) if host and port.isdecimal() else None

    @property
    def sidecars(self) -> str:
        """The kind of new pods' sidecars, for status messages."""
        if self.proxy.native_proxy:
            return "native sidecars"
        return "classic sidecars" + (", native in Jobs" if self.native_sidecars else "")

    @property
    def name(self) -> str:
        """The name in status messages."""
        injector = self.injector
        where = f"{injector.namespace}/{injector.service}" if injector.namespace else injector.url
        revision = "" if injector.is_default else f" {injector.revision}"
        version = f" {'.'.join(self.proxy.version.split('.')[:2])}" if self.proxy.version else ""
        return f"{where}{revision}{version}"
