"""Every command line explains itself, refuses what it does not know, and is plain in a pipe."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
WORKLOAD = ("-m", "sidecar_lifecycle.cli")
CLIS = [
    WORKLOAD,
    *((*WORKLOAD, each) for each in ("run", "admission", "explain", "uninjected", "mutate")),
    ("-m", "testbed"),
    ("-m", "testbed", "juju"),
    ("-m", "testbed.juju.pack"),
    ("-m", "testbed.juju.charmcraft"),
    ("-m", "testbed.environments"),
    ("-m", "demo"),
    ("docs/generate.py",),
    *((f"bench/{path.name}",) for path in sorted((ROOT / "bench").glob("bench_*.py"))),
]


def run(*command):
    path = os.pathsep.join(map(str, (ROOT / "workload", ROOT)))
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "\x1b" not in done.stdout + done.stderr, "colours in a pipe"
    return done


@pytest.mark.parametrize("cli", [pytest.param(cli, id=" ".join(cli)) for cli in CLIS])
def test_help_has_examples_that_name_the_program(cli):
    done = run(*cli, "--help")
    assert done.returncode == 0, done.stderr
    _, found, examples = done.stdout.partition("example")
    assert found, done.stdout
    name = "sidecar-lifecycle" if cli[:2] == WORKLOAD else " ".join(cli)
    assert name in examples


@pytest.mark.parametrize(
    "cli", [WORKLOAD, (*WORKLOAD, "run"), ("-m", "testbed"), ("-m", "testbed", "juju")]
)
def test_unknown_option_is_named_and_refused(cli):
    done = run(*cli, "--no-such-option")
    assert done.returncode == 2
    assert "usage: " in done.stderr
    assert done.stdout == ""


def test_product_says_its_version():
    done = run(*WORKLOAD, "--version")
    name, version = done.stdout.split()
    assert (name, done.returncode) == ("sidecar-lifecycle", 0)
    assert version[0].isdigit()
