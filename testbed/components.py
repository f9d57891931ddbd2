"""Command lines and configuration files of the components: pure, nothing is run here."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.addresses import Plan
from testbed.options import Options

NODE_NAME = "testbed"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""The same in every testbed: each has a /run of its own."""

_POLICY_RESOURCES = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The facts that command lines are made of."""

    name: str
    state: Path
    binaries: Path
    """Directory with the Go programs."""
    options: Options
    plan: Plan
    apiserver_port: int = 6443
    etcd_port: int = 2379
    pause_image: str = ""
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
    def cgroup(self) -> str:
        """Parent of all cgroups of pods."""
        return f"/istio-integrator-{self.name}"

    def kubeconfig(self, user: str) -> Path:
        """Path of a component's kubeconfig."""
        return self.state / "config" / f"{user}.kubeconfig"

    def config(self, name: str) -> Path:
        """Path of a component's configuration file."""
        return self.state / "config" / name


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


def policy_flags(options: Options) -> list[str]:
    """Return the apiserver flags of the two policy switches."""
    flags: list[str] = []
    if options.disable_policy_api:
        group = "admissionregistration.k8s.io/v1"
        off = ",".join(f"{group}/{resource}=false" for resource in _POLICY_RESOURCES)
        flags.append(f"--runtime-config={off}")
    if options.disable_policy_api or options.disable_policy_plugin:
        flags.append("--disable-admission-plugins=MutatingAdmissionPolicy")
    return flags


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
        *policy_flags(layout.options),
    ]
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
                root_dir=layout.state / "kubelet",
                cert_dir=layout.state / "kubelet-pki",
                hostname_override=NODE_NAME,
                node_ip=layout.plan.node,
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
            *_flags(config=layout.config("kube-proxy.json"), hostname_override=NODE_NAME),
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


def all_of(layout: Layout) -> list[Component]:
    """Return the components that the options ask for, in the order of starting."""
    plane = [etcd(layout), apiserver(layout), controller_manager(layout)]
    if layout.options.control_plane_only:
        return plane
    node = [scheduler, containerd, kubelet, kube_proxy, coredns]
    return [*plane, *(render(layout) for render in node)]


def files(layout: Layout) -> dict[str, str]:
    """Return the configuration files by name."""
    if layout.options.control_plane_only:
        return {}
    return {
        "containerd.toml": containerd_config(layout),
        "kubelet.json": json.dumps(kubelet_config(layout), indent=2),
        "kube-proxy.json": json.dumps(kube_proxy_config(layout), indent=2),
        "Corefile": corefile(layout),
        "cni/10-testbed.conflist": json.dumps(cni_config(layout.plan), indent=2),
        "resolv.conf": f"nameserver {layout.plan.node}\n",
    }


def containerd_config(layout: Layout) -> str:
    """Return containerd's TOML, of the version that containerd 1.6 and 2 both read."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    tables: Sequence[tuple[str, Mapping[str, Any]]] = (
        (
            "",
            {
                "version": 2,
                "root": str(layout.state / "containerd"),
                "state": "/run/containerd",
                "disabled_plugins": [
                    f"io.containerd.snapshotter.v1.{name}"
                    for name in ("aufs", "btrfs", "devmapper", "zfs")
                ],
            },
        ),
        ("grpc", {"address": CONTAINERD_SOCKET}),
        ('plugins."io.containerd.internal.v1.opt"', {"path": str(layout.state / "opt")}),
        (
            cri,
            {
                "sandbox_image": layout.pause_image,
                # Negative scores need CAP_SYS_RESOURCE, which containers often lack.
                "restrict_oom_score_adj": True,
            },
        ),
        (f"{cri}.containerd", {"snapshotter": layout.snapshotter}),
        (f"{cri}.containerd.runtimes.runc", {"runtime_type": "io.containerd.runc.v2"}),
        (f"{cri}.containerd.runtimes.runc.options", {"SystemdCgroup": False}),
        (f"{cri}.cni", {"bin_dir": "/usr/lib/cni", "conf_dir": str(layout.config("cni"))}),
    )
    lines: list[str] = []
    for title, values in tables:
        lines += [f"[{title}]"] if title else []
        # TOML's strings, booleans, numbers and arrays of strings are written like JSON's.
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def kubelet_config(layout: Layout) -> dict[str, Any]:
    """Return the KubeletConfiguration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
            "anonymous": {"enabled": False},
        },
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": layout.cgroup,
        "clusterDNS": [str(layout.plan.dns)],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        # A development machine's disk is usually fuller than a server's.
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "500Mi",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "500Mi",
        },
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "maxPods": 110,
        "oomScoreAdj": 0,
        "podLogsDir": str(layout.state / "logs" / "pods"),
        "protectKernelDefaults": True,
        "registryPullQPS": 0,
        "resolvConf": str(layout.config("resolv.conf")),
        "serializeImagePulls": False,
        "shutdownGracePeriod": "0s",
        # Mounted Secrets follow soon: the training operator waits for one that it fills itself.
        "syncFrequency": "2s",
        # Mounted Secrets follow at this pace: the training operator waits for its certificate.
        "syncFrequency": "3s",
        "volumePluginDir": str(layout.state / "kubelet-plugins"),
    }


def kube_proxy_config(layout: Layout) -> dict[str, Any]:
    """Return the KubeProxyConfiguration."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "bindAddress": "0.0.0.0",
        "clientConnection": {"kubeconfig": str(layout.kubeconfig("kube-proxy"))},
        "clusterCIDR": str(layout.plan.pods),
        # Zero leaves the kernel's settings alone: they belong to the whole machine.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "iptables": {"minSyncPeriod": "100ms"},
        "nodePortAddresses": [f"{layout.plan.node}/32"],
        "oomScoreAdj": 0,
    }


def corefile(layout: Layout) -> str:
    """Return CoreDNS's configuration: the cluster's names and nothing beyond."""
    return f"""\
cluster.local:53 in-addr.arpa:53 {{
    bind {layout.plan.node}
    errors
    ready 127.0.0.1:8181
    kubernetes {{
        kubeconfig {layout.kubeconfig("coredns")}
        ttl 2
    }}
    cache 2
}}
.:53 {{
    bind {layout.plan.node}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def cni_config(plan: Plan) -> dict[str, Any]:
    """Return the pod network: a routed pair per pod.

    Without a bridge, traffic between two pods is always seen by the node's iptables, also on
    kernels that lack br_netfilter.
    """
    return {
        "cniVersion": "0.4.0",
        "name": "testbed",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-addresses",
                    "ranges": [[{"subnet": str(plan.pods)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
