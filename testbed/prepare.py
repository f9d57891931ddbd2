"""Writing the state directory that the supervisor and its components start from."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from testbed import certificates, components, configuration, paths, programs

_USERS = {
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": (f"system:node:{components.NODE_NAME}", "system:nodes"),
    "kube-proxy": ("system:kube-proxy", ""),
    "coredns": ("testbed:coredns", ""),
}
"""Certificate file to the user and group of its component."""


def write(layout: components.Layout) -> None:
    """Write certificates, kubeconfigs, configuration files and `spec.json`."""
    for name in ("logs", "config"):
        (layout.state / name).mkdir(parents=True, exist_ok=True)
    _write_identities(layout)
    for name, text in configuration.files(layout).items():
        path = layout.config(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    node = None
    if not layout.options.control_plane_only:
        keep = (layout.state, paths.cache(), paths.SOURCE)
        node = {
            "keep": [str(path) for path in keep],
            "address": str(layout.plan.node),
            "services": str(layout.plan.services),
            "cgroup": layout.cgroup,
            "networks": str(layout.config("cni")),
            "istiod": layout.istiod
            and {
                "address": str(layout.plan.istiod),
                "gateway": str(layout.plan.istiod_gateway),
            },
        }
    if layout.istiod:
        layout.istiod.write_files(layout.state / "istiod")
    spec = {
        "authority": str(layout.pki / "ca.crt"),
        "components": [dataclasses.asdict(one) for one in components.all_of(layout)],
        "node": node,
    }
    (layout.state / "spec.json").write_text(json.dumps(spec, indent=2))


def _write_identities(layout: components.Layout) -> None:
    authority = certificates.Authority(layout.pki)
    service = "kubernetes.default.svc"
    authority.server(
        "apiserver",
        ("localhost", "kubernetes", "kubernetes.default", service, f"{service}.cluster.local"),
        ("127.0.0.1", str(layout.plan.node), str(layout.plan.kubernetes)),
    )
    authority.signing_key("tokens")
    authority.client("apiserver-kubelet", "testbed:apiserver", "system:masters")
    admin = authority.client("admin", "admin", "system:masters")
    _write_private(layout.state / "kubeconfig", layout, admin)
    users = dict(_USERS)
    if layout.istiod:
        # By the name of its account it has the rights that Istio's charts give that.
        users["istiod"] = (layout.istiod.account, "")
    for stem, (user, group) in users.items():
        pair = authority.client(stem, user, group)
        _write_private(layout.kubeconfig(stem), layout, pair)


def _write_private(path: Path, layout: components.Layout, pair: certificates.Pair) -> None:
    path.touch(mode=0o600)
    path.write_text(certificates.kubeconfig(layout.server, layout.pki / "ca.crt", pair))


def link_programs(target: Path, products: Sequence[str]) -> None:
    """Fill one directory with links to the programs of several products."""
    target.mkdir(parents=True, exist_ok=True)
    for product in products:
        for program in (programs.directory(product) / "bin").iterdir():
            link = target / program.name
            link.unlink(missing_ok=True)
            link.symlink_to(program)
