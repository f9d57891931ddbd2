"""What the Makefile's targets and the machine's set-up insist on."""

import os
import pathlib
import shutil
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


def test_who_is_not_root_is_told_how_to_get_a_browser_and_nothing_else(tmp_path: pathlib.Path):
    stubs = {"dpkg-query": "exit 1", "id": "echo 1000", "apt-get": f"touch {tmp_path}/asked"}
    for name, script in stubs.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    asked = subprocess.run(
        ["testbed/setup.sh", "browser"],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    told = asked.stdout.splitlines()[-1]
    assert "apt-get install --no-install-recommends chromium" in told
    assert "iproute2" not in told
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("target", "told"),
    [
        pytest.param("passes", "1 passed\n", id="a clean checkout, and files that git ignores"),
        pytest.param(
            "writes",
            ".ci/run: the run left changes in the checkout:\n M Makefile\n?? new\n",
            id="files that a test wrote",
        ),
    ],
)
def test_run_that_leaves_files_in_the_checkout_fails_and_names_them(
    tmp_path: pathlib.Path, target: str, told: str
):
    (tmp_path / ".ci").mkdir()
    shutil.copy2(ROOT / ".ci/run", tmp_path / ".ci")
    (tmp_path / ".gitignore").write_text("/build/\n")
    (tmp_path / "Makefile").write_text(
        "passes:\n\t@mkdir build; touch build/log; echo 1 passed\n"
        "writes:\n\t@touch new; echo >> Makefile\n"
    )
    git = ["git", "-C", tmp_path, "-c", "user.name=x", "-c", "user.email=x@invalid"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    ran = subprocess.run(
        [tmp_path / ".ci/run", target], capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.returncode) == (told, 1 if target == "writes" else 0)
