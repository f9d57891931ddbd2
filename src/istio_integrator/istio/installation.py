"""The Istio that a model joins, as discovery found it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from integrator_contract import names, refusals
from istio_integrator.istio import injectors, meshconfig
from istio_integrator.messages import Message

_DISCOVERY_PORT = 15012


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh(injectors.Injector, meshconfig.IstiodSettings):
    """The control plane behind an injector, by its settings and as a dry-run pod showed it."""

    service: str = "istiod"
    """The Service that the injector's webhook configuration points to."""
    version: str = ""
    """As the proxy's image or istiod itself says; empty when neither does."""
    proxy_revision: str = ""
    """The revision that new pods get, which a tag may move; empty while nobody answers."""
    has_values: bool = False
    """Whether the values of its injector were read, which say of it what no dry-run pod could."""
    discovery_address: str = ""
    """Where new proxies look for istiod; empty while nobody answers."""
    alive: bool = False
    """Whether the injector answered the dry-run pod with a sidecar."""
    problem: str = ""
    """Why it is not alive, with the API server's words."""
    remedy: str = ""
    """The command that mends the problem; empty where none is known."""
    refusal: refusals.Refusal | None = None
    """Who else refused the dry-run pod: whether it injects is not known then."""
    injectors: tuple[injectors.Injector, ...] = dataclasses.field(default=(), compare=False)
    """All that the cluster has, of this Istio and of others."""
    probed: bool = False
    """Whether a dry-run pod showed what it does; without, what follows is assumed."""
    native_sidecars: bool = False
    """Whether pods that run to completion get native sidecars: probe, nodes and option agree."""
    native_by_default: bool = False
    """Whether pods that ask for nothing get native sidecars."""
    native_obstacle: Message | None = None
    """What keeps the option from giving native sidecars."""
    overwritten: tuple[str, ...] = ()
    """Annotations of pods that istiod's own `injectedAnnotations` replace."""
    cni: bool = False
    """Whether Istio's CNI plugin redirects the traffic of pods, from their first moment."""
    captures_outbound: bool = True
    """Whether calls of pods go through their proxies, which `injectedAnnotations` may end."""
    captures_names: bool = False
    """Whether look-ups of names go through them too (`ISTIO_META_DNS_CAPTURE`)."""
    excluded_outbound_ports: tuple[int, ...] = ()
    """That every proxy leaves alone, unless its pod names ports of its own: then only those."""

    @property
    def cuts_off_controller(self) -> bool:
        """Whether charms would not reach Juju's controller through what their pods get.

        The controller may be anywhere, so a proxy that lets nothing unknown out is in the way.
        """
        return self.captures_outbound and (self.registry_only or self._leads_nowhere)

    @property
    def cuts_off_names(self) -> bool:
        """Whether the first look-up of a charm's pod gets no answer."""
        return self.captures_names and self._leads_nowhere

    @property
    def hold_honoured(self) -> bool:
        """Whether what asks a classic sidecar to hold the application reaches it."""
        return names.PROXY_CONFIG not in self.overwritten

    @property
    def _leads_nowhere(self) -> bool:
        """Whether init containers call a proxy that starts after them, through the CNI plugin."""
        return self.cni and not self.native_by_default

    @property
    def namespace_labels(self) -> dict[str, str]:
        """The label that makes a namespace a member."""
        if self.is_default:
            return {names.INJECTION: "enabled"}
        return {names.REVISION: self.revision}

    def has_member(self, labels: Mapping[str, str]) -> bool:
        """Tell whether this Istio injects into pods of a namespace with these labels."""
        found = injectors.injecting(self.injectors, labels)
        return found is not None and found.is_same_istiod(self)

    @property
    def pod_labels(self) -> dict[str, str]:
        """The label that makes one pod a member in a namespace that is not."""
        if self.is_default:
            return {names.INJECT: "true"}
        return {names.REVISION: self.revision}

    @property
    def pilot(self) -> tuple[str, int] | None:
        """The host and the port at which proxies are configured; None while that is not known."""
        if self.namespace:
            return f"{self.service}.{self.namespace}.svc", _DISCOVERY_PORT
        host, _, port = self.discovery_address.rpartition(":")
        return (host, int(port)) if host and port.isdecimal() else None

    @property
    def sidecars(self) -> str:
        """What kind new pods get, as status messages say it."""
        if self.native_by_default:
            return "native sidecars"
        return "classic sidecars" + (", native in Jobs" if self.native_sidecars else "")

    @property
    def name(self) -> str:
        """How status messages call it."""
        where = f"{self.namespace}/{self.service}" if self.namespace else self.url
        revision = "" if self.is_default else f" {self.revision}"
        version = f" {'.'.join(self.version.split('.')[:2])}" if self.version else ""
        return f"{where}{revision}{version}"
