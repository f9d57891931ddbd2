"""Every command line explains itself, says its version, and refuses what it does not know."""

import argparse
import os
import pathlib
import runpy
import shlex
import subprocess
import sys
import tomllib

import pytest
import sidecar_lifecycle
import yaml

from integrator_contract import schema
from testbed import cli as testbed_cli
from testbed.juju import charmcraft
from testbed.juju import cli as juju_cli

ROOT = pathlib.Path(__file__).parents[2]
WORKLOAD = ("-m", "sidecar_lifecycle.shell.cli")
PROGRAMS = {
    WORKLOAD: ("explain",),
    ("-m", "testbed"): ("status",),
    ("-m", "testbed", "juju"): ("models",),
    ("-m", "testbed.juju.pack"): (),
    ("-m", "testbed.juju.charmcraft"): (),
    ("-m", "testbed.environments"): ("integration",),
    ("-m", "demo"): (),
    ("docs/generate.py",): (),
    ("docs/pictures.py",): (),
    **{(f"bench/{path.name}",): () for path in sorted((ROOT / "bench").glob("bench_*.py"))},
}
"""How each is started, and what it can't do without."""
SLOW_TO_START = [
    cli for cli in PROGRAMS if cli[0].startswith("bench/") and "bench_shutdown" not in cli[0]
]
"""They import what the tests do; as programs, two that find their neighbours stand for them."""
COMMANDS = [
    (*WORKLOAD, each) for each in ("run", "admission", "explain", "uninjected", "mutate", "stop")
]


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


def each(clis, long=()):
    return pytest.mark.parametrize(
        "cli",
        [
            pytest.param(cli, id=" ".join(cli), marks=[pytest.mark.long] if cli in long else [])
            for cli in clis
        ],
    )


def version(cli):
    contract = f" (contract {schema.SCHEMA})" if cli[:2] == WORKLOAD else ""
    return f"{name(cli).removeprefix('-m ')} {sidecar_lifecycle.__version__}{contract}\n"


# What a test imported before is no news to who runs it as a program.
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
class TestProgram:
    """What a program says of itself."""

    @each([*PROGRAMS, *COMMANDS])
    def test_help_has_examples_that_name_the_program(self, run, cli):
        code, out, err = run(*cli, "--help")
        assert code == 0, err
        _, found, examples = out.partition("example")
        assert found, out
        assert name(cli) in examples

    @each(PROGRAMS)
    def test_version_is_that_of_the_product(self, run, cli):
        assert run(*cli, "--version") == (0, version(cli), "")

    @each(PROGRAMS)
    def test_unknown_option_is_named_and_refused(self, run, cli):
        code, out, err = run(*cli, *PROGRAMS[cli], "--no-such-option")
        assert (code, out) == (2, "")
        assert "usage: " in err
        assert "--no-such-option" in err


@each(PROGRAMS, long=SLOW_TO_START)
def test_program_starts_in_a_process_of_its_own(cli):
    path = os.pathsep.join(map(str, (ROOT / "lib", ROOT / "workload", ROOT)))
    done = subprocess.run(
        [sys.executable, *cli, "--version"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, version(cli), "")


@pytest.mark.parametrize("release", [False, True])
def test_build_says_which_addresses_are_missing_and_stops_before_a_release(
    tmp_path, monkeypatch, capsys, release
):
    (tmp_path / "metadata.yaml").write_text("name: a\nsource: https://a.example\ndocs:\n")
    built = []
    monkeypatch.setattr(charmcraft, "build", lambda *places: built.append(places))
    code = charmcraft.main([str(tmp_path), *(["--release"] if release else [])])
    assert "no public address for docs, issues, website" in capsys.readouterr().err
    assert (code, len(built)) == ((1, 0) if release else (0, 1))


def test_what_is_published_has_the_version_of_the_program():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rock = yaml.safe_load((ROOT / "workload/rockcraft.yaml").read_text())
    assert {project["version"], rock["version"]} == {sidecar_lifecycle.__version__}


def parsers(parser):
    """The parsers of all commands, and of the commands that those have."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from parsers(command)


TESTBED = [
    command
    for root in (testbed_cli.parser(), juju_cli.parser())
    for command in (root, *parsers(root))
    # The testbed only lists it; the help is that of Juju's own parser.
    if command is root or command.prog != "testbed juju"
]


@pytest.mark.parametrize("parser", TESTBED, ids=lambda parser: parser.prog)
def test_examples_of_the_testbed_are_ones_that_it_accepts(parser):
    title, *examples = (parser.epilog or "").splitlines()
    assert title == "examples:"
    assert examples
    for example in examples:
        python, option, module, *words = shlex.split(example)
        assert (python, option, module) == ("python", "-m", "testbed")
        assert " ".join(("testbed", *words, "")).startswith(f"{parser.prog} ")
        if of_juju := testbed_cli.split_juju(words):
            juju_cli.parser().parse_args(of_juju[1])
        else:
            testbed_cli.parser().parse_args(words)
