"""Every command line explains itself, says its version, and refuses what it does not know."""

import argparse
import contextlib
import os
import pathlib
import pty
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
COMMANDS = [
    (*WORKLOAD, each) for each in ("run", "admission", "explain", "uninjected", "mutate", "stop")
]
COLOURFUL = """
from demo import report, view
with view.showing(list, plain=False) as shown:
    shown.line(report.Line(1.0, "missed", "it is so"))
"""


def environment():
    path = os.pathsep.join(map(str, (ROOT / "lib", ROOT / "workload", ROOT)))
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "100"}


def run(*command):
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def name(cli):
    return "sidecar-lifecycle" if cli[:2] == WORKLOAD else " ".join(cli)


def each(clis):
    return pytest.mark.parametrize("cli", [pytest.param(cli, id=" ".join(cli)) for cli in clis])


@each([*PROGRAMS, *COMMANDS])
def test_help_has_examples_that_name_the_program(cli):
    done = run(*cli, "--help")
    assert done.returncode == 0, done.stderr
    _, found, examples = done.stdout.partition("example")
    assert found, done.stdout
    assert name(cli) in examples


@each(PROGRAMS)
def test_version_is_that_of_the_product(cli):
    done = run(*cli, "--version")
    assert done.returncode == 0, done.stderr
    contract = f" (contract {schema.SCHEMA})" if cli[:2] == WORKLOAD else ""
    program = name(cli).removeprefix("-m ")
    assert done.stdout == f"{program} {sidecar_lifecycle.__version__}{contract}\n"


@each(PROGRAMS)
def test_unknown_option_is_named_and_refused(cli):
    done = run(*cli, *PROGRAMS[cli], "--no-such-option")
    assert done.returncode == 2, done.stderr
    assert "usage: " in done.stderr
    assert "--no-such-option" in done.stderr
    assert done.stdout == ""


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


def show(output):
    ignored = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")
    kept = {key: value for key, value in environment().items() if key not in ignored}
    command = [sys.executable, "-c", COLOURFUL]
    subprocess.run(command, cwd=ROOT, env={**kept, "TERM": "xterm"}, stdout=output, check=True)


def test_colours_are_for_terminals_only(tmp_path):
    screen, terminal = pty.openpty()
    show(terminal)
    os.close(terminal)
    shown = b""
    # What ends the screen is an error: nobody has the terminal open any more.
    with contextlib.suppress(OSError):
        while part := os.read(screen, 4096):
            shown += part
    os.close(screen)
    with (tmp_path / "output").open("w+") as file:
        show(file)
        file.seek(0)
        kept = file.read()
    assert b"\x1b[1;31mit is so\x1b[0m" in shown
    assert kept == "    1.0 s  ✗ it is so\n"
