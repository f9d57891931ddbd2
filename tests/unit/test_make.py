"""What the Makefile's targets insist on."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def make(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("ci", ["", "false", "true"])
@pytest.mark.parametrize("target", ["test", "test-all"])
def test_everything_fails_without_root_before_it_begins_and_names_what_needs_none(
    target: str, ci: str
):
    asked = make("root", "IS_ROOT=", CI=ci)
    assert asked.returncode
    assert "without: make lint unit functional" in asked.stdout
    planned = make("--dry-run", target, "IS_ROOT=", CI=ci).stdout
    assert "needs root" in planned.splitlines()[0]


@pytest.mark.parametrize("target", ["lint", "unit", "functional"])
def test_the_small_tiers_by_name_ask_for_no_root(target: str):
    assert "needs root" not in make("--dry-run", target, "IS_ROOT=").stdout
