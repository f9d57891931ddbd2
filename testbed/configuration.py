"""Configuration files of the components: pure, nothing is written here."""

import json
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any

from testbed import components


def files(layout: components.Layout) -> dict[str, str]:
    """Return the configuration files by name."""
    if layout.options.control_plane_only:
        return {"audit.json": json.dumps(audit_policy())}
    pods = layout.plan.pods_of(layout.index)
    return {
        "containerd.toml": containerd_config(layout),
        "kubelet.json": json.dumps(kubelet_config(layout), indent=2),
        "kube-proxy.json": json.dumps(kube_proxy_config(layout), indent=2),
        "cni/10-testbed.conflist": json.dumps(cni_config(pods), indent=2),
        "resolv.conf": f"nameserver {layout.plan.node}\n",
        **({} if layout.index else {"Corefile": corefile(layout)}),
    }


def audit_policy() -> dict[str, Any]:
    """Return the Policy by which an API server logs what applications ask, not controllers."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        ],
    }


def containerd_config(layout: components.Layout) -> str:
    """Return containerd's TOML, of the version that containerd 1.6 and 2 both read."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    tables: Sequence[tuple[str, Mapping[str, Any]]] = (
        (
            "",
            {
                "version": 2,
                "root": str(layout.home / "containerd"),
                "state": "/run/containerd",
                "disabled_plugins": [
                    f"io.containerd.snapshotter.v1.{name}"
                    for name in ("aufs", "btrfs", "devmapper", "zfs")
                ],
            },
        ),
        ("grpc", {"address": components.CONTAINERD_SOCKET}),
        ('plugins."io.containerd.internal.v1.opt"', {"path": str(layout.home / "opt")}),
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
        (
            f"{cri}.cni",
            {"bin_dir": components.CNI_PROGRAMS, "conf_dir": components.CNI_NETWORKS},
        ),
    )
    lines: list[str] = []
    for title, values in tables:
        lines += [f"[{title}]"] if title else []
        # TOML's strings, booleans, numbers and arrays of strings are written like JSON's.
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def kubelet_config(layout: components.Layout) -> dict[str, Any]:
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
        "containerRuntimeEndpoint": f"unix://{components.CONTAINERD_SOCKET}",
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
        "podLogsDir": str(layout.home / "logs" / "pods"),
        "protectKernelDefaults": True,
        "registryPullQPS": 0,
        "resolvConf": str(layout.config("resolv.conf")),
        "serializeImagePulls": False,
        "shutdownGracePeriod": "0s",
        # Mounted Secrets follow soon: the training operator waits for one that it fills itself.
        "syncFrequency": "2s",
        "volumePluginDir": str(layout.home / "kubelet-plugins"),
    }


def kube_proxy_config(layout: components.Layout) -> dict[str, Any]:
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
        "nodePortAddresses": [f"{layout.node_address}/32"],
        "oomScoreAdj": 0,
    }


def corefile(layout: components.Layout) -> str:
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


def cni_config(pods: IPv4Network) -> dict[str, Any]:
    """Return the pod network of a node: a routed pair per pod.

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
                    "ranges": [[{"subnet": str(pods)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
