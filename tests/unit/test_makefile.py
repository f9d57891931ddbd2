"""`make test` runs each tier, whatever failed before, and says last what to repeat."""

import hashlib
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


def publish(
    folder: pathlib.Path, *words: str, programs: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    """Run `make publish-local` in a folder whose build is done, with stand-ins for programs."""
    (folder / "build").mkdir()
    (folder / "build/sidecar-lifecycle_0.1.0_amd64.rock").write_text("an image")
    for name in programs:
        (folder / name).write_text('#!/bin/sh\necho pushed "$@"\n')
        (folder / name).chmod(0o755)
    command = [
        "make",
        f"--file={MAKEFILE}",
        "--old-file=python",
        "MAKE=echo made",
        "publish-local",
    ]
    return subprocess.run(
        [*command, *words],
        cwd=folder,
        env={**ENVIRONMENT, "PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


IMAGE = f"sidecar-lifecycle:{hashlib.sha256(b'an image').hexdigest()[:12]}"
SKOPEO = ("rockcraft.skopeo",)


@cases(
    ("registry", "verified"),
    of_microk8s=("localhost:32000", "false"),
    by_address=("127.0.0.1:5000", "false"),
    of_the_network=("registry.internal:5000/kubeflow", "true"),
)
def test_publish_local_pushes_the_image_and_prints_the_deployment(tmp_path, registry, verified):
    done = publish(tmp_path, f"REGISTRY={registry}", "IS_ROOT=yes", programs=SKOPEO)
    *made, pushed, _, deploy = done.stdout.splitlines()
    assert made == ["made pack", "made rock"]
    assert pushed.split()[1:] == [
        "--insecure-policy",
        "copy",
        f"--dest-tls-verify={verified}",
        "oci-archive:build/sidecar-lifecycle_0.1.0_amd64.rock",
        f"docker://{registry}/{IMAGE}",
    ]
    assert deploy.split()[-2:] == ["--resource", f"lifecycle-image={registry}/{IMAGE}"]
    assert done.returncode == 0


def test_publish_local_packs_as_root_and_leaves_the_files_to_the_user(tmp_path):
    words = ("REGISTRY=localhost:32000", "IS_ROOT=")
    done = publish(tmp_path, *words, programs=(*SKOPEO, "sudo"))
    packed, owned, made, *_ = done.stdout.splitlines()
    assert packed == "pushed echo made pack"
    assert owned.startswith("pushed chown --recursive ")
    assert made == "made rock"


@cases(
    ("registry", "programs", "said"),
    without_a_registry=("", SKOPEO, "set the registry that the cluster pulls from"),
    with_a_scheme=("https://registry.internal", SKOPEO, "without https://"),
    without_rockcraft=("localhost:32000", (), "sudo snap install rockcraft --classic"),
)
def test_publish_local_says_what_it_lacks_before_it_builds(tmp_path, registry, programs, said):
    done = publish(tmp_path, f"REGISTRY={registry}", programs=programs)
    assert said in done.stdout
    assert "pushed" not in done.stdout
    assert done.returncode == 2
