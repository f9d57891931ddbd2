"""What charmcraft packs is what the testbed packs in a hundredth of the time."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import yaml

from testbed import charmcraft, pack, paths
from testbed.images import recipes
from tests import asked

PLACED_BY_TOOLS = re.compile(
    r"manifest\.yaml|dispatch|README\.md|.*/__pycache__/.*|.*\.pyc|venv/pyvenv\.cfg|venv/bin/.*"
    r"|venv/lib/[^/]+/site-packages/(bin/.*|\.lock|_virtualenv.*|[^/]+\.dist-info/.*)"
)
"""What says who packed, or is only there to start faster."""
COMPILED = re.compile(r".*\.so(\.\d+)*$")
"""Of these each may take another of the wheels that fit."""


def content(archive):
    with zipfile.ZipFile(archive) as opened:
        return {
            name: None if COMPILED.match(name) else opened.read(name)
            for name in opened.namelist()
            if not name.endswith("/") and not PLACED_BY_TOOLS.fullmatch(name)
        }


def packages(archive):
    with zipfile.ZipFile(archive) as opened:
        found = (re.search(r"/([^/]+)\.dist-info/METADATA$", each) for each in opened.namelist())
        return {match[1] for match in found if match}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_charmcraft_packs_the_same_as_the_testbed(tmp_path):
    # Somebody may be editing.
    source = tmp_path / "source"
    skipped = shutil.ignore_patterns(".*", "build", "testbed", "tests", "docs", "demo", "bench")
    shutil.copytree(paths.SOURCE, source, ignore=skipped)
    theirs = charmcraft.build(source, tmp_path / "charmcraft")
    shutil.copytree(source, tmp_path / "clone", copy_function=shutil.copyfile)
    again = charmcraft.build(tmp_path / "clone", tmp_path / "again")
    assert theirs.read_bytes() == again.read_bytes()
    ours = pack.pack(source, tmp_path / "testbed")
    one, other = content(theirs), content(ours)
    assert sorted(one) == sorted(other)
    assert [name for name in one if one[name] != other[name]] == []
    assert packages(theirs) == packages(ours)


@pytest.mark.long
def test_release_asks_charmcraft_for_what_it_can_do():
    workflow = (paths.SOURCE / ".github" / "workflows" / "release.yaml").read_text()
    lines = workflow.replace("\\\n", " ").splitlines()
    asked = [found for line in lines if (found := re.search(r"\bcharmcraft ([a-z-]+)(.*)", line))]
    commands = [
        found for found in asked if not re.search("snap install|#", found.string[: found.start()])
    ]
    assert {found[1] for found in commands} == {"promote", "upload", "upload-resource"}
    for found in commands:
        done = subprocess.run(
            [charmcraft.environment() / "bin" / "charmcraft", found[1], "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        told = done.stdout + done.stderr
        assert done.returncode == 0, told
        for option in re.findall(r"--[a-z-]+", found[2].partition("|")[0]):
            assert option in told, (found[0], told)


ROCK = yaml.safe_load((paths.SOURCE / "workload" / "rockcraft.yaml").read_text())
(PART,) = ROCK["parts"].values()


def test_rock_starts_the_program_as_the_testbeds_image_does():
    launcher = recipes.LAUNCHER.format(
        library="/opt/sidecar-lifecycle", module="sidecar_lifecycle.shell.cli"
    )
    assert (paths.SOURCE / "workload" / "launcher").read_text() == launcher


@pytest.mark.long
@pytest.mark.timeout(600)
def test_rocks_part_builds_and_holds_the_pins(tmp_path):
    for name in ("sidecar_lifecycle", "launcher"):
        source = paths.SOURCE / "workload" / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    contract = paths.SOURCE / "lib" / "integrator_contract"
    shutil.copytree(contract, tmp_path / contract.name)
    pins = paths.SOURCE / "requirements" / "workload.txt"
    shutil.copy(pins, tmp_path / "requirements.txt")
    # Debian's packages are for the rock's base, not for this machine.
    part = {key: value for key, value in PART.items() if not key.endswith("-packages")}
    (tmp_path / "parts.yaml").write_text(yaml.safe_dump({"parts": {"sidecar-lifecycle": part}}))
    program = "import sys; from craft_parts.main import main; sys.exit(main())"
    command = [charmcraft.environment() / "bin" / "python", "-c", program, "-f", "parts.yaml"]
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*command, "prime"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    library = tmp_path / "prime" / "opt" / "sidecar-lifecycle"
    found = {
        re.sub(r"[-_.]+", "-", each.name.split("-")[0]) for each in library.glob("*.dist-info")
    }
    wanted = set(re.findall(r"^([a-z0-9-]+)==", pins.read_text(), re.MULTILINE))
    assert found <= wanted
    assert {"aiohttp", "msgspec", "prometheus-client"} <= found
    moved = (tmp_path / "prime" / "usr" / "bin" / "sidecar-lifecycle").read_text()
    script = tmp_path / "started"
    script.write_text(moved.replace("/opt/sidecar-lifecycle", str(library)))
    says = subprocess.run(
        [sys.executable, "-IS", script, "--version"], capture_output=True, text=True, check=True
    )
    assert says.stdout.startswith("sidecar-lifecycle ")
    assert (tmp_path / "prime/usr/share/rocks/dpkg.query").exists()


def test_rock_runs_as_the_user_that_the_charm_and_the_testbed_say():
    (container,) = yaml.safe_load((paths.SOURCE / "metadata.yaml").read_text())[
        "containers"
    ].values()
    user = recipes.recipe("workload").config["User"]
    assert user == f"{container['uid']}:{container['gid']}"
    # Rocks give this user that number.
    assert (ROCK["run-user"], container["uid"]) == ("_daemon_", 584792)


def test_rock_has_the_program_where_the_charm_runs_it():
    (service,) = ROCK["services"].values()
    assert service["command"].split()[0] == asked.PROGRAM
    assert f'launcher "$CRAFT_PART_INSTALL{asked.PROGRAM}"' in PART["override-build"]


def test_rock_knows_the_public_authorities():
    # What is staged has no script run, and the folder that OpenSSL and Pebble read stays empty.
    assert "ca-certificates" in PART["overlay-packages"]
    assert "ca-certificates" not in PART["stage-packages"]
