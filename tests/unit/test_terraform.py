"""The Terraform module offers what the charm has."""

import json
import pathlib
import re

import hcl2
import yaml

ROOT = pathlib.Path(__file__).parents[2]
MODULE = ROOT / "terraform"
METADATA = yaml.safe_load((ROOT / "metadata.yaml").read_text())


def blocks(name, kind):
    """Return the blocks of one kind in a file of the module, by their labels."""
    with (MODULE / name).open() as file:
        loaded = hcl2.load(file)[kind]
    return {label.strip('"'): body for block in loaded for label, body in block.items()}


def text(value):
    return json.loads(value)


def test_every_variable_is_used_and_every_one_that_is_used_exists():
    used = set(re.findall(r"\bvar\.(\w+)", (MODULE / "main.tf").read_text()))
    variables = blocks("variables.tf", "variable")
    assert used == variables.keys()
    assert all(text(body["description"]) for body in variables.values())


def test_charm_and_base_are_those_that_are_packed():
    application = blocks("main.tf", "resource")["juju_application"]['"istio_integrator"']
    (charm,) = application["charm"]
    assert text(charm["name"]) == METADATA["name"]
    platforms = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())["platforms"]
    base = text(blocks("variables.tf", "variable")["base"]["default"])
    assert {name.rpartition(":")[0] for name in platforms} == {base}


def test_resources_are_named_as_the_charm_does():
    example = text(blocks("variables.tf", "variable")["resources"]["description"])
    assert all(name in example for name in METADATA["resources"])
