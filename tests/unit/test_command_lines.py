"""Every command line explains itself and says its version."""

import pathlib
import runpy
import sys
import tomllib

import pytest
import sidecar_lifecycle
import yaml

from integrator_contract import schema

ROOT = pathlib.Path(__file__).parents[2]
WORKLOAD = ("-m", "sidecar_lifecycle.shell.cli")
PROGRAMS = [
    WORKLOAD,
    ("-m", "testbed"),
    ("-m", "testbed", "juju"),
    ("-m", "testbed.juju.pack"),
    ("-m", "testbed.juju.charmcraft"),
    ("-m", "testbed.environments"),
    ("-m", "demo"),
    ("docs/generate.py",),
    ("docs/pictures.py",),
    *((f"bench/{path.name}",) for path in sorted((ROOT / "bench").glob("bench_*.py"))),
]
COMMANDS = [(*WORKLOAD, each) for each in ("run", "admission", "explain")]


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a program in this process, which has most of what it imports; returns what it says."""

    def run(*command):
        monkeypatch.chdir(ROOT)
        monkeypatch.setenv("COLUMNS", "100")
        by_name = command[0] == "-m"
        script, *words = command[1:] if by_name else command
        monkeypatch.setattr(sys, "argv", [script, *words])
        monkeypatch.setattr(sys, "path", [str((ROOT / script).parent), *sys.path])
        start = runpy.run_module if by_name else runpy.run_path
        with pytest.raises(SystemExit) as ended:
            start(script, run_name="__main__")
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def name(cli):
    return "sidecar-lifecycle" if cli[:2] == WORKLOAD else " ".join(cli)


# What a test imported before is no news to who runs it as a program.
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("cli", [*PROGRAMS, *COMMANDS], ids=" ".join)
def test_help_has_examples_that_name_the_program(run, cli):
    code, out, err = run(*cli, "--help")
    assert code == 0, err
    _, found, examples = out.partition("example")
    assert found, out
    assert name(cli) in examples


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_version_of_the_workload_has_that_of_the_contract(run):
    version = f"sidecar-lifecycle {sidecar_lifecycle.__version__} (contract {schema.SCHEMA})\n"
    assert run(*WORKLOAD, "--version") == (0, version, "")


def test_what_is_published_has_the_version_of_the_program():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rock = yaml.safe_load((ROOT / "workload/rockcraft.yaml").read_text())
    assert {project["version"], rock["version"]} == {sidecar_lifecycle.__version__}
