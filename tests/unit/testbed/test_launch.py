import os
from pathlib import Path

import pytest

from testbed import launch

HOLDER = launch.Holder(pid=1, started="1", init=4711, slot=0)


@pytest.mark.parametrize(
    ("directory", "want"),
    [
        pytest.param("/srv/code", "--wd=/srv/code", id="kept"),
        pytest.param("/run/user/0", "--wd=/", id="private"),
    ],
)
def test_inside_runs_in_a_directory_that_the_node_sees(directory: str, want: str):
    argv = launch.inside(HOLDER, ["ctr", "version"], Path(directory))
    assert want in argv
    assert "--target=4711" in argv
    assert argv[argv.index("--") :] == ["--", "ctr", "version"]


def test_environment_finds_the_systems_programs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    assert launch.environment()["PATH"].split(os.pathsep) == ["/usr/bin", "/usr/sbin", "/sbin"]


def test_component_pids_of_a_broken_status_are_none(tmp_path: Path):
    assert launch.component_pids(tmp_path) == []
    (tmp_path / "status.json").write_text('{"etcd": {"pid": 7}, "kubelet": {"pid": null}}')
    assert launch.component_pids(tmp_path) == [7]
