"""The workflows are what GitHub takes, and run what a developer runs."""

import pathlib
import re
import subprocess

import yaml

from testbed import programs

ROOT = pathlib.Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def test_workflows_are_understood():
    programs.ensure(["actionlint"])
    # Only what every machine has: shellcheck and pyflakes are programs of their own.
    command = [programs.binary("actionlint"), "-shellcheck=", "-pyflakes=", *WORKFLOWS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_run_targets_that_exist():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    jobs = [job for file in WORKFLOWS for job in yaml.safe_load(file.read_text())["jobs"].values()]
    runs = "\n".join(step.get("run", "") for job in jobs for step in job["steps"])
    made = set(re.findall(r"\bmake ([a-z0-9-]+)", runs))
    assert made - targets == set()
    assert {"lint", "unit", "functional", "e2e", "pack", "integration", "test-all"} <= made
