"""Command lines of the components: pure, nothing is run here."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import outside
from testbed.addresses import Plan
from testbed.options import Options

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CNI_PROGRAMS = "/run/cni/bin"
CNI_NETWORKS = "/run/cni/net.d"
"""The same on every node: each has a /run of its own."""

# By default a node is missed after 50 s, and its pods leave it 300 s later.
_SOON_MISSED = ("--node-monitor-grace-period=20s",)
_SOON_ELSEWHERE = (
    "--default-not-ready-toleration-seconds=10",
    "--default-unreachable-toleration-seconds=10",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The facts that command lines are made of."""

    name: str
    state: Path
    binaries: Path
    """Directory with the Go programs."""
    options: Options
    plan: Plan
    index: int = 0
    """Of the node; number 0 is the first, which has the control plane."""
    apiserver_port: int = 6443
    etcd_port: int = 2379
    pause_image: str = ""
    istiod: outside.Process | None = None
    """An istiod outside of the cluster."""
    snapshotter: str = "overlayfs"

    @property
    def address(self) -> str:
        """Where the apiserver is reached."""
        return "127.0.0.1" if self.options.control_plane_only else str(self.plan.node)

    @property
    def server(self) -> str:
        """The apiserver's URL in kubeconfigs."""
        return f"https://{self.address}:{self.apiserver_port}"

    @property
    def pki(self) -> Path:
        """Directory of keys and certificates."""
        return self.state / "pki"

    @property
    def home(self) -> Path:
        """The node's directory."""
        return home(self.state, self.index)

    @property
    def node_name(self) -> str:
        """The node's name in the cluster."""
        return node_name(self.index)

    @property
    def node_address(self) -> str:
        """Where the node is reached."""
        return str(self.plan.node_of(self.index))

    @property
    def cgroup(self) -> str:
        """Parent of all cgroups of the node's pods."""
        return cgroup(self.name, self.index)

    def kubeconfig(self, user: str) -> Path:
        """Path of a component's kubeconfig."""
        return self.home / "config" / f"{user}.kubeconfig"

    def config(self, name: str) -> Path:
        """Path of a component's configuration file."""
        return self.home / "config" / name


def home(state: Path, index: int) -> Path:
    """Return a node's directory, which is the testbed's own for the first node."""
    return state / "nodes" / str(index) if index else state


def node_name(index: int) -> str:
    """Return a node's name in the cluster."""
    return f"testbed-{index}" if index else "testbed"


def cgroup(name: str, index: int) -> str:
    """Return the parent of all cgroups of a node's pods; none begins like another one."""
    return f"/istio-integrator{f'.{index}' if index else ''}-{name}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Component:
    """One process of the testbed."""

    name: str
    argv: tuple[str, ...]
    after: tuple[str, ...] = ()
    """Components that must be ready before this one is started."""
    probe: str = ""
    """`tcp://host:port`, `unix:///path` or `https://host:port/path`; empty: ready once started."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def _flags(**flags: Any) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]


def etcd(layout: Layout) -> Component:
    """Render etcd: one member that need not survive a power cut."""
    client = f"http://127.0.0.1:{layout.etcd_port}"
    return Component(
        name="etcd",
        argv=(
            str(layout.binaries / "etcd"),
            *_flags(
                name="testbed",
                data_dir=layout.state / "etcd",
                listen_client_urls=client,
                advertise_client_urls=client,
                # One member has no peers to be found by: any port will do.
                listen_peer_urls="http://127.0.0.1:0",
                unsafe_no_fsync="true",
                quota_backend_bytes=2 << 30,
                log_level="warn",
            ),
        ),
        probe=f"tcp://127.0.0.1:{layout.etcd_port}",
    )


def apiserver(layout: Layout) -> Component:
    """Render kube-apiserver."""
    pki = layout.pki
    alone = layout.options.control_plane_only
    argv = [
        str(layout.binaries / "kube-apiserver"),
        *_flags(
            etcd_servers=f"http://127.0.0.1:{layout.etcd_port}",
            bind_address="127.0.0.1" if alone else "0.0.0.0",
            advertise_address=layout.address,
            secure_port=layout.apiserver_port,
            cert_dir=layout.state / "apiserver",
            tls_cert_file=pki / "apiserver.crt",
            tls_private_key_file=pki / "apiserver.key",
            client_ca_file=pki / "ca.crt",
            service_account_issuer="https://kubernetes.default.svc",
            service_account_key_file=pki / "tokens.pub",
            service_account_signing_key_file=pki / "tokens.key",
            service_cluster_ip_range=layout.plan.services,
            authorization_mode="Node,RBAC",
            enable_admission_plugins="NodeRestriction",
            allow_privileged="true",
            kubelet_client_certificate=pki / "apiserver-kubelet.crt",
            kubelet_client_key=pki / "apiserver-kubelet.key",
            kubelet_preferred_address_types="InternalIP",
            # `kubernetes.default` can't point to loopback, and without a node nobody follows it.
            endpoint_reconciler_type="none" if alone else "lease",
            profiling="false",
        ),
        *(_SOON_ELSEWHERE if layout.options.nodes > 1 else ()),
    ]
    if alone:
        log = layout.state / "audit.log"
        argv += _flags(audit_policy_file=layout.config("audit.json"), audit_log_path=log)
    return Component(
        name="kube-apiserver",
        argv=tuple(argv),
        after=("etcd",),
        probe=f"https://127.0.0.1:{layout.apiserver_port}/readyz",
    )


def controller_manager(layout: Layout) -> Component:
    """Render kube-controller-manager."""
    pki = layout.pki
    return Component(
        name="kube-controller-manager",
        argv=(
            str(layout.binaries / "kube-controller-manager"),
            *_flags(
                kubeconfig=layout.kubeconfig("controller-manager"),
                service_account_private_key_file=pki / "tokens.key",
                root_ca_file=pki / "ca.crt",
                cluster_signing_cert_file=pki / "ca.crt",
                cluster_signing_key_file=pki / "ca.key",
                use_service_account_credentials="true",
                leader_elect="false",
                # No metrics are wanted, and a port would be one more to collide.
                secure_port=0,
            ),
            *(_SOON_MISSED if layout.options.nodes > 1 else ()),
        ),
        after=("kube-apiserver",),
    )


def scheduler(layout: Layout) -> Component:
    """Render kube-scheduler."""
    return Component(
        name="kube-scheduler",
        argv=(
            str(layout.binaries / "kube-scheduler"),
            *_flags(
                kubeconfig=layout.kubeconfig("scheduler"), leader_elect="false", secure_port=0
            ),
        ),
        after=("kube-apiserver",),
    )


def containerd(layout: Layout) -> Component:
    """Render containerd."""
    return Component(
        name="containerd",
        argv=("containerd", "--config", str(layout.config("containerd.toml"))),
        probe=f"unix://{CONTAINERD_SOCKET}",
    )


def kubelet(layout: Layout) -> Component:
    """Render the kubelet."""
    return Component(
        name="kubelet",
        argv=(
            str(layout.binaries / "kubelet"),
            *_flags(
                config=layout.config("kubelet.json"),
                kubeconfig=layout.kubeconfig("kubelet"),
                root_dir=layout.home / "kubelet",
                cert_dir=layout.home / "kubelet-pki",
                hostname_override=layout.node_name,
                node_ip=layout.node_address,
            ),
        ),
        after=("kube-apiserver", "containerd"),
        probe="tcp://127.0.0.1:10248",
    )


def kube_proxy(layout: Layout) -> Component:
    """Render kube-proxy."""
    return Component(
        name="kube-proxy",
        argv=(
            str(layout.binaries / "kube-proxy"),
            *_flags(config=layout.config("kube-proxy.json"), hostname_override=layout.node_name),
        ),
        after=("kube-apiserver",),
        probe="tcp://127.0.0.1:10256",
    )


def coredns(layout: Layout) -> Component:
    """Render CoreDNS."""
    return Component(
        name="coredns",
        argv=(str(layout.binaries / "coredns"), "-conf", str(layout.config("Corefile"))),
        after=("kube-apiserver",),
        probe="tcp://127.0.0.1:8181",
    )


def istiod(layout: Layout, process: outside.Process) -> Component:
    """Render an istiod outside of the cluster, in its own network."""
    return Component(
        name="istiod",
        argv=(
            *("nsenter", f"--net=/run/netns/{outside.NETWORK}", "--"),
            *("env", f"--chdir={layout.state / 'istiod'}"),
            str(layout.binaries / "pilot-discovery"),
            *process.arguments,
            *_flags(kubeconfig=layout.kubeconfig("istiod")),
        ),
        after=("kube-apiserver",),
        probe=f"tcp://{layout.plan.istiod}:{outside.INJECTOR_PORT}",
        environment=process.environment,
    )


def _among(names: Sequence[str], present: Sequence[Component]) -> tuple[str, ...]:
    return tuple(name for name in names if any(name == one.name for one in present))


def all_of(layout: Layout) -> list[Component]:
    """Return the components of a node that the options ask for, in the order of starting."""
    if layout.index:
        further = [render(layout) for render in (containerd, kubelet, kube_proxy)]
        return [dataclasses.replace(one, after=_among(one.after, further)) for one in further]
    plane = [etcd(layout), apiserver(layout), controller_manager(layout)]
    if layout.options.control_plane_only:
        return plane
    node = [scheduler, containerd, kubelet, kube_proxy, coredns]
    elsewhere = [istiod(layout, layout.istiod)] if layout.istiod else []
    return [*plane, *(render(layout) for render in node), *elsewhere]
