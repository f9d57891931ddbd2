import dataclasses
import json
from pathlib import Path

import pytest

from testbed import cli, cluster, launch, nodes, paths
from testbed.options import Options


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a testbed of three nodes that are all down."""
    monkeypatch.setattr(paths, "states", lambda: tmp_path)
    folder = tmp_path / "default"
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(dataclasses.asdict(Options(nodes=3))))
    return folder


def test_nodes_have_names_and_places_by_their_number(state: Path):
    found = cluster.Testbed().nodes
    assert [node.name for node in found] == ["testbed", "testbed-1", "testbed-2"]
    assert [node.folder for node in found] == [state, state / "nodes/1", state / "nodes/2"]


def test_log_of_a_component_is_in_the_folder_of_its_node(state: Path):
    testbed = cluster.Testbed()
    assert testbed.log("kubelet") == state / "logs/kubelet.log"
    assert testbed.log("testbed-2/kubelet") == state / "nodes/2/logs/kubelet.log"


@pytest.mark.parametrize("argv", [["node", "kill", "3"], ["node", "cut", "-1"]])
def test_node_that_there_is_not_is_named(
    state: Path, argv: list[str], capsys: pytest.CaptureFixture[str]
):
    assert cli.main(argv) == 1
    assert f"has no node {argv[-1]}; the last is 2" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["kill", "start", "cut", "mend"])
def test_first_node_is_neither_killed_nor_cut_off(
    state: Path, action: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["node", action, "0"]) == 1
    assert "is the first node" in capsys.readouterr().err


def test_components_of_a_node_that_is_down_are_not_those_it_had(state: Path):
    node = nodes.Node(state, 1)
    node.folder.mkdir(parents=True)
    (node.folder / "status.json").write_text('{"kubelet": {"ready": true}}')
    assert node.components() == {}
    with pytest.raises(nodes.NodeError, match="testbed-1 is not up"):
        node.require()


def test_names_of_links_fit_the_kernel():
    assert len({launch.link_to(index) for index in range(4)}) == 4
    assert all(len(launch.link_to(index)) <= 15 for index in range(4))
