"""The scenarios for a real Juju fit the library that they are written for."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from testbed import environments

ROOT = pathlib.Path(__file__).parents[2]
TIER = ROOT / "tests" / "integration"


def run(*command, **how):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **how
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment() -> pathlib.Path:
    return environments.ensure("integration")


def test_scenarios_are_collected(environment):
    options = ["-c", TIER / "pytest.ini", "--collect-only", "-q"]
    out = run(environment / "bin" / "python", "-m", "pytest", *options, TIER, cwd=ROOT)
    assert len([line for line in out.splitlines() if "::test_" in line]) >= 13


def test_scenarios_are_typed_as_the_libraries_are(environment, tmp_path):
    config = {
        # Absolute paths would be left out, with no more than a word of warning.
        "include": [os.path.relpath(TIER, tmp_path)],
        "venvPath": str(environment.parent),
        "venv": environment.name,
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    file = tmp_path / "pyrightconfig.json"
    file.write_text(json.dumps(config))
    pyright = pathlib.Path(sys.executable).parent / "pyright"
    said = run(pyright, "--warnings", "-p", file)
    assert "No source files" not in said
