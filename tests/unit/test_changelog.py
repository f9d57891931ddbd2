"""What operators notice of changes can be gathered in a changelog."""

import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]


def draft(folder: pathlib.Path) -> str:
    command = ("-m", "towncrier", "build", "--draft", "--version", "9.9.9", "--date", "2030-01-01")
    done = subprocess.run(
        [sys.executable, *command, "--dir", str(folder), "--config", str(ROOT / "pyproject.toml")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_change_is_of_a_kind_that_the_changelog_has():
    kinds = {each["directory"] for each in SETTINGS["type"]}
    files = {path.name for path in (ROOT / SETTINGS["directory"]).iterdir()}
    assert {*SETTINGS["ignore"]} <= files
    assert [
        name for name in files - {*SETTINGS["ignore"]} if name.split(".")[-2] not in kinds
    ] == []


def test_changes_become_a_part_of_the_changelog(tmp_path):
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "7.fixed.md").write_text("Jobs end.\n")
    (tmp_path / "changes" / "+new.added.md").write_text("An option.\n")
    (tmp_path / "changes" / "README.md").write_text("How to.\n")
    told = draft(tmp_path)
    assert "## 9.9.9 (2030-01-01)" in told
    assert told.index("An option.") < told.index("Jobs end.")
    assert "How to." not in told
