"""The Makefile's targets can be made, and those that start nodes insist on root."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TARGETS = re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


def dry_run(*words: str) -> str:
    command = ["make", "--no-print-directory", "--dry-run", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("target", TARGETS)
def test_target_can_be_made(target: str):
    assert dry_run(target, "IS_ROOT=0")


def test_modules_and_scripts_that_targets_run_are_in_the_checkout():
    text = (ROOT / "Makefile").read_text()
    modules = {name.replace(".", "/") for name in re.findall(r"-m ((?:testbed|demo)[.\w]*)", text)}
    scripts = set(re.findall(r"\b(?:testbed|docs|bench)/\w+\.(?:py|sh)", text))
    assert {"testbed/juju/charmcraft", "demo"} <= modules
    assert [
        each
        for each in modules
        if not (ROOT / f"{each}.py").exists() and not (ROOT / each / "__main__.py").exists()
    ] == []
    assert [each for each in scripts if not (ROOT / each).exists()] == []


@pytest.mark.parametrize("target", ["test", "test-all"])
def test_everything_fails_without_root_before_it_begins(target: str):
    planned = dry_run(target, "IS_ROOT=").splitlines()
    assert "needs root" in planned[0]
    assert "without: make lint unit functional" in planned[0]


@pytest.mark.parametrize("target", ["lint", "unit", "functional"])
def test_the_small_tiers_by_name_ask_for_no_root(target: str):
    assert "needs root" not in dry_run(target, "IS_ROOT=")
