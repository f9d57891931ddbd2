"""`make test` runs each tier, whatever failed before, and says last what to repeat."""

import os
import pathlib
import subprocess

from tests.unit.cases import cases

MAKEFILE = pathlib.Path(__file__).parents[2] / "Makefile"
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
"""Of a make that is not part of the one that runs the tests."""
TIERS = ("unit", "functional", "e2e")


@cases(
    ("target", "failing", "repeated"),
    all_pass=("test", (), []),
    first_fails=("test", ("unit",), ["make unit"]),
    one_beside_it_fails=("test", ("functional",), ["make functional"]),
    all_fail=("test", TIERS, ["make unit", "make functional", "make e2e"]),
    long_ones_fail=("test-all", ("unit",), ["make unit QUICK= SIDE_BY_SIDE="]),
)
def test_tiers_after_a_failed_one_run_too(tmp_path, target, failing, repeated):
    programs = [
        f"{tier.upper()}=sh -c 'echo ran {tier}; exit {int(tier in failing)}'" for tier in TIERS
    ]
    command = ["make", f"--file={MAKEFILE}", "--old-file=root", "--old-file=setup"]
    command += ["--old-file=lint", "IS_ROOT=yes", "COVERAGE=echo", target, *programs]
    done = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    said = done.stdout.splitlines()
    assert [line for line in said if line.startswith("ran ")] == [f"ran {tier}" for tier in TIERS]
    wanted = [
        f"make: {tier} failed; to repeat it: {command}"
        for tier, command in zip(failing, repeated, strict=True)
    ]
    assert said[said.index("ran e2e") + 1 :] == wanted
    assert (done.returncode == 0) is (not failing)
