"""Each file in changes/ is of a kind that the changelog has."""

import pathlib
import tomllib

ROOT = pathlib.Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]


def test_every_change_is_of_a_kind_that_the_changelog_has():
    kinds = {each["directory"] for each in SETTINGS["type"]}
    files = {path.name for path in (ROOT / SETTINGS["directory"]).iterdir()}
    assert {*SETTINGS["ignore"]} <= files
    assert [
        name for name in files - {*SETTINGS["ignore"]} if name.split(".")[-2] not in kinds
    ] == []
