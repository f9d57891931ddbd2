import itertools
import json
import re
import tomllib
from pathlib import Path

from testbed import addresses, components, configuration, istio, programs
from testbed.components import Component, Layout
from testbed.options import Options


def layout(slot: int = 3, index: int = 0, **switches: bool | int) -> Layout:
    return Layout(
        index=index,
        name="unit",
        state=Path("/state/unit"),
        binaries=Path("/state/unit/bin"),
        options=Options(**switches),  # pyright: ignore[reportArgumentType]
        plan=addresses.plan(slot),
        pause_image="localhost/testbed/pause:1",
    )


def flags(component: Component) -> dict[str, str]:
    pairs = (one.partition("=") for one in component.argv[1:])
    return {name: value for name, _, value in pairs}


def test_control_plane_only_has_no_component_that_needs_root():
    names = [one.name for one in components.all_of(layout(control_plane_only=True))]
    assert names == ["etcd", "kube-apiserver", "kube-controller-manager"]


def test_control_plane_only_listens_on_loopback_only():
    given = layout(control_plane_only=True)
    apiserver = flags(components.apiserver(given))
    assert apiserver["--bind-address"] == "127.0.0.1"
    assert apiserver["--endpoint-reconciler-type"] == "none"
    assert given.server == "https://127.0.0.1:6443"


def test_node_components_are_started_after_what_they_need():
    given = components.all_of(layout())
    started: set[str] = set()
    for one in given:
        assert set(one.after) <= started, one.name
        started.add(one.name)
    assert {"kubelet", "containerd", "kube-proxy", "coredns"} <= started


def test_istios_cni_plugin_is_installed_where_containerd_looks():
    wanted = istio.Installation(proxy_image="proxy:1", pilot_image="pilot:1", cni_image="cni:1")
    spec = istio.overlay(wanted)["spec"]
    text = configuration.containerd_config(layout())
    (given,) = [
        plugin["cni"]
        for name, plugin in tomllib.loads(text)["plugins"].items()
        if name.endswith("cri")
    ]
    assert given["bin_dir"] == spec["values"]["cni"]["cniBinDir"]
    assert given["conf_dir"] == spec["values"]["cni"]["cniConfDir"]
    assert spec["components"]["cni"]["enabled"] is True
    assert "cni" in istio.images(cni=True)


def test_node_advertises_the_address_that_pods_and_host_reach():
    given = layout(slot=2)
    node = str(addresses.plan(2).node)
    assert flags(components.apiserver(given))["--advertise-address"] == node
    assert flags(components.kubelet(given))["--node-ip"] == node
    assert node in given.server


def test_containerd_configuration_is_toml_with_what_small_machines_need():
    given = tomllib.loads(configuration.containerd_config(layout()))
    cri = given["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is True
    assert cri["sandbox_image"] == "localhost/testbed/pause:1"
    assert cri["containerd"]["runtimes"]["runc"]["options"] == {"SystemdCgroup": False}
    assert given["root"] == "/state/unit/containerd"


def test_every_json_file_of_a_node_parses():
    for name, text in configuration.files(layout()).items():
        if name.endswith((".json", ".conflist")):
            assert json.loads(text)


def test_pods_get_addresses_of_their_slot():
    text = configuration.files(layout(slot=5))["cni/10-testbed.conflist"]
    (first, *_) = json.loads(text)["plugins"]
    assert first["ipam"]["ranges"] == [[{"subnet": str(addresses.plan(5).pods_of(0))}]]


def test_further_node_has_no_control_plane_and_waits_for_none():
    given = components.all_of(layout(index=2, nodes=3))
    assert [one.name for one in given] == ["containerd", "kubelet", "kube-proxy"]
    names = {one.name for one in given}
    assert all(names.issuperset(one.after) for one in given)
    assert "Corefile" not in configuration.files(layout(index=2, nodes=3))


def test_nodes_of_a_testbed_share_neither_name_nor_place():
    given = [layout(index=index, nodes=3) for index in range(3)]
    kubelets = [flags(components.kubelet(one)) for one in given]
    for name in ("--hostname-override", "--node-ip", "--root-dir", "--kubeconfig", "--config"):
        assert len({one[name] for one in kubelets}) == 3, name
    assert len({one.cgroup for one in given}) == 3
    texts = [configuration.files(one) for one in given]
    for name in ("containerd.toml", "kubelet.json", "kube-proxy.json", "cni/10-testbed.conflist"):
        assert len({one[name] for one in texts}) == 3, name


def test_no_cgroup_of_a_node_begins_like_that_of_another_node_or_testbed():
    """A kubelet looks after all cgroups that begin like its own."""
    names = [components.cgroup(name, index) for name in ("a", "a-1", "1-a") for index in (0, 1)]
    for one, other in itertools.permutations(names, 2):
        assert one != other
    for index in (1, 2, 3):
        assert not components.cgroup("a", index).startswith(components.cgroup("a", 0))


def test_a_node_is_soon_missed_where_there_are_several():
    assert "--node-monitor-grace-period" in flags(components.controller_manager(layout(nodes=2)))
    assert "--node-monitor-grace-period" not in flags(components.controller_manager(layout()))
    name = "--default-unreachable-toleration-seconds"
    assert name in flags(components.apiserver(layout(nodes=2)))
    assert name not in flags(components.apiserver(layout()))


def test_two_testbeds_share_no_path_but_the_private_run():
    one, other = layout(), Layout(**{**vars(layout()), "state": Path("/state/other")})
    for mine, theirs in zip(components.all_of(one), components.all_of(other), strict=True):
        given = {text for text in mine.argv[1:] if "/state/unit" in text}
        shared = {text for text in given if text.startswith("--")} & set(theirs.argv)
        assert not shared, mine.name


def test_corefile_names_the_plugins_that_coredns_is_built_with():
    named = re.findall(r"^    (\w+)", configuration.corefile(layout()), re.MULTILINE)
    built = (programs.PINS / "coredns" / "main.go").read_text()
    assert set(named) == set(re.findall(r"coredns/plugin/(\w+)", built))


def test_corefile_answers_names_outside_the_cluster_with_nxdomain():
    text = configuration.corefile(layout())
    assert "rcode NXDOMAIN" in text
    assert text.count("{") == text.count("}")
