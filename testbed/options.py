"""The switches of `testbed up`."""

import dataclasses
import re
from collections.abc import Sequence

from testbed import addresses

EXTRAS = ("training-operator",)
"""What `--with` accepts."""

OLDER = ("1.34", "1.35")
"""Versions of Kubernetes whose apiserver a control plane without a node may have instead."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_REVISION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,54}[a-z0-9])?")


class OptionsError(Exception):
    """The switches contradict each other or have impossible values."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What kind of cluster to start."""

    control_plane_only: bool = False
    """etcd, kube-apiserver and kube-controller-manager on loopback; no pods, no root."""
    without_istio: bool = False
    """Leave istiod and the gateway to a later `testbed istio install`."""
    classic_sidecars: bool = False
    """istiod's `ENABLE_NATIVE_SIDECARS=false`."""
    cni: bool = False
    """Istio's CNI plugin redirects the traffic of pods, instead of an init container of theirs."""
    external_istiod: bool = False
    """istiod runs outside of the cluster, which calls its injector by URL."""
    revision: str = ""
    """Install istiod under this revision; empty is the default one."""
    kubernetes: str = ""
    """An older apiserver, from `OLDER`; empty: the usual one."""
    nodes: int = 1
    """How many, each with a kubelet, containerd and network of its own."""
    extras: tuple[str, ...] = ()
    """Names from `EXTRAS` to install as well."""

    def problems(self) -> list[str]:
        """Return what is wrong with the switches, one sentence each."""
        found: list[str] = []
        if self.revision and not _REVISION.fullmatch(self.revision):
            found.append(
                f"--revision {self.revision!r} is not a DNS label of at most 56 characters"
            )
        found += [
            f"--with {name}: unknown, there is {', '.join(EXTRAS)}"
            for name in self.extras
            if name not in EXTRAS
        ]
        if not 1 <= self.nodes <= addresses.NODES:
            found.append(f"--nodes {self.nodes}: there may be 1 to {addresses.NODES}")
        if self.external_istiod and self.without_istio:
            found.append("--external-istiod is an Istio, --without-istio leaves it out")
        if self.control_plane_only:
            clashing = {
                "--without-istio": self.without_istio,
                "--classic-sidecars": self.classic_sidecars,
                "--cni": self.cni,
                "--external-istiod": self.external_istiod,
                "--revision": bool(self.revision),
                "--nodes": self.nodes > 1,
                "--with": bool(self.extras),
            }
            found += [
                f"{switch} needs a node, --control-plane-only has none"
                for switch, given in clashing.items()
                if given
            ]
        if self.kubernetes not in ("", *OLDER):
            found.append(f"--kubernetes {self.kubernetes!r}: unknown, there is {', '.join(OLDER)}")
        elif self.kubernetes and not self.control_plane_only:
            found.append("--kubernetes needs --control-plane-only")
        return found

    def validate(self) -> None:
        """Raise OptionsError when the switches can't be served."""
        if problems := self.problems():
            raise OptionsError(problems)


def validate_name(name: str) -> None:
    """Raise OptionsError unless the name can be part of paths, cgroups and messages."""
    if not _NAME.fullmatch(name):
        raise OptionsError(
            [f"--name {name!r}: lower-case letters, digits and inner dashes, at most 40"]
        )
