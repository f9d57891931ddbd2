"""Writing the state directory that the supervisor and its components start from."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from testbed import certificates, components, configuration, namespaces, paths, programs

_PLANE = {
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "coredns": ("testbed:coredns", ""),
}
"""Certificate file to the user and group of its component, beside those that each node has."""


def write(layout: components.Layout) -> None:
    """Write certificates, kubeconfigs, configuration files and `spec.json` of a node.

    The first one is written first: it has the authority of the certificates.
    """
    for name in ("logs", "config"):
        (layout.home / name).mkdir(parents=True, exist_ok=True)
    authority = certificates.Authority(layout.pki)
    if not layout.index:
        _write_own(layout, authority)
    _write_users(layout, authority)
    for name, text in configuration.files(layout).items():
        path = layout.config(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    node = None
    if not layout.options.control_plane_only:
        keep = (layout.state, paths.cache(), paths.SOURCE)
        node = {
            "keep": [str(path) for path in keep],
            "address": layout.node_address,
            "routes": _routes(layout),
            "cgroup": layout.cgroup,
            "networks": str(layout.config("cni")),
            "istiod": None
            if layout.index or not layout.istiod
            else {
                "address": str(layout.plan.istiod),
                "gateway": str(layout.plan.istiod_gateway),
            },
        }
    if layout.istiod and not layout.index:
        layout.istiod.write_files(layout.state / "istiod")
    spec = {
        "authority": str(layout.pki / "ca.crt"),
        "components": [dataclasses.asdict(one) for one in components.all_of(layout)],
        "node": node,
    }
    (layout.home / "spec.json").write_text(json.dumps(spec, indent=2))


def _routes(layout: components.Layout) -> list[list[str]]:
    """Arguments of `ip route add`, beside those to further nodes, which come with their links."""
    if layout.index:
        return [["default", "via", str(layout.plan.gateway_to(layout.index))]]
    # A connection of the node's own is routed before kube-proxy's rules see it.
    services = str(layout.plan.services)
    return [[services, "dev", namespaces.LINK, "src", layout.node_address]]


def _write_own(layout: components.Layout, authority: certificates.Authority) -> None:
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


def _write_users(layout: components.Layout, authority: certificates.Authority) -> None:
    users = {
        "kubelet": (f"system:node:{layout.node_name}", "system:nodes"),
        "kube-proxy": ("system:kube-proxy", ""),
    }
    if not layout.index:
        users |= _PLANE
        if layout.istiod:
            # By the name of its account it has the rights that Istio's charts give that.
            users["istiod"] = (layout.istiod.account, "")
    for stem, (user, group) in users.items():
        pair = authority.client(f"{stem}-{layout.index}", user, group)
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
