"""The Terraform module offers what the charm has; docs/generate.py writes its lists."""

import pathlib
import re

import yaml

ROOT = pathlib.Path(__file__).parents[2]
MAIN = (ROOT / "terraform/main.tf").read_text()
VARIABLES = (ROOT / "terraform/variables.tf").read_text()


def test_every_variable_is_used_and_every_one_that_is_used_exists():
    defined = set(re.findall(r'^variable "(\w+)"', VARIABLES, re.MULTILINE))
    assert set(re.findall(r"\bvar\.(\w+)", MAIN)) == defined


def test_charm_base_and_resources_are_those_that_are_packed():
    metadata = yaml.safe_load((ROOT / "metadata.yaml").read_text())
    platforms = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())["platforms"]
    (base,) = {platform.rpartition(":")[0] for platform in platforms}
    assert f'name     = "{metadata["name"]}"' in MAIN
    assert f'default     = "{base}"' in VARIABLES
    assert all(name in VARIABLES for name in metadata["resources"])
