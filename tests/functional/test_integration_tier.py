"""The scenarios for a real Juju fit the libraries that they are written for."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from testbed import environments

ROOT = pathlib.Path(__file__).parents[2]
TIER = ROOT / "tests" / "integration"
PARTS = [
    pytest.param("integration", TIER / "test_charm.py", [], 9, id="jubilant"),
    pytest.param(
        "integration-operator",
        TIER / "operator",
        ["-c", TIER / "pytest.ini", "--asyncio-mode=auto"],
        3,
        id="pytest-operator",
        marks=pytest.mark.long,
    ),
]


def run(*command, **how):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **how
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("environment", "tests", "options", "at_least"), PARTS)
def test_scenarios_are_collected(environment, tests, options, at_least):
    python = environments.ensure(environment) / "bin" / "python"
    out = run(python, "-m", "pytest", *options, "--collect-only", "-q", tests, cwd=ROOT)
    assert len([line for line in out.splitlines() if "::test_" in line]) >= at_least


@pytest.mark.parametrize(("environment", "tests", "options", "at_least"), PARTS)
def test_scenarios_are_typed_as_the_libraries_are(environment, tests, options, at_least, tmp_path):
    folder = environments.ensure(environment)
    config = {
        # Absolute paths would be left out, with no more than a word of warning.
        "include": [os.path.relpath(each, tmp_path) for each in (tests, TIER / "conftest.py")],
        "venvPath": str(folder.parent),
        "venv": folder.name,
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    file = tmp_path / "pyrightconfig.json"
    file.write_text(json.dumps(config))
    pyright = pathlib.Path(sys.executable).parent / "pyright"
    said = run(pyright, "--warnings", "-p", file)
    assert "No source files" not in said
