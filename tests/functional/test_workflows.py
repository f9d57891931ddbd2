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


def test_secrets_are_for_one_step_and_beside_them_run_only_actions_of_a_commit():
    for file in (each for each in WORKFLOWS if "secrets." in each.read_text()):
        workflow = yaml.safe_load(file.read_text())
        steps = [step for job in workflow["jobs"].values() for step in job.pop("steps")]
        assert "secrets." not in str(workflow)
        assert not [step for step in steps if "secrets." in str(step) and "uses" in step]
        actions = [step["uses"] for step in steps if "uses" in step]
        assert actions
        assert not [each for each in actions if not re.search(r"@[0-9a-f]{40}$", each)]


def test_release_signs_charm_and_rock_before_it_uploads_them():
    release = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text())
    steps = release["jobs"]["release"]["steps"]
    (upload,) = (at for at, step in enumerate(steps) if "secrets." in str(step))
    signs = [step for step in steps[:upload] if "/attest-" in step.get("uses", "")]
    provenance, *contents = (step["with"]["subject-path"].split() for step in signs)
    assert provenance == ["build/*.charm", "build/*.rock"]
    assert contents == [["build/*.charm"], ["build/*.rock"]]
