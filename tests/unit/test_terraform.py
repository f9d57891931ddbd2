"""The Terraform module offers what the charm has."""

import json
import pathlib
import re

import hcl2
import yaml

ROOT = pathlib.Path(__file__).parents[2]
MODULE = ROOT / "terraform"
METADATA = yaml.safe_load((ROOT / "metadata.yaml").read_text())


# juju_application of the provider 1.3: registry.terraform.io/providers/juju/juju.
REQUIRED = {"model_uuid"}
OPTIONAL = {
    *("charm", "config", "constraints", "endpoint_bindings", "expose", "machines", "name"),
    *("placement", "registry_credentials", "resources", "storage_directives", "trust", "units"),
}
OF_A_CHARM = {"name", "base", "channel", "revision", "series"}
CONVENTIONAL = {
    *("app_name", "channel", "config", "constraints", "model_uuid", "revision"),
    *("storage_directives", "units"),
}
"""Variables that modules of charms have in common, as canonical/prometheus-k8s-operator's."""


def blocks(name, kind):
    """Return the blocks of one kind in a file of the module, by their labels."""
    with (MODULE / name).open() as file:
        loaded = hcl2.load(file)[kind]
    return {label.strip('"'): body for block in loaded for label, body in block.items()}


def text(value):
    return json.loads(value)


def test_config_knows_exactly_the_options_of_the_charm():
    known = yaml.safe_load((ROOT / "config.yaml").read_text())["options"]
    (validation,) = blocks("variables.tf", "variable")["config"]["validation"]
    named = re.findall(r'"([a-z-]+)"', validation["condition"])
    assert sorted(named) == sorted(known)


def test_every_variable_is_used_and_every_one_that_is_used_exists():
    used = set(re.findall(r"\bvar\.(\w+)", (MODULE / "main.tf").read_text()))
    variables = blocks("variables.tf", "variable")
    assert used == variables.keys()
    assert all(text(body["description"]) for body in variables.values())


def test_endpoints_are_those_of_the_charm():
    outputs = blocks("outputs.tf", "output")
    for side in ("provides", "requires"):
        names = {key: text(value) for key, value in outputs[side]["value"].items()}
        assert names == {name.replace("-", "_"): name for name in METADATA[side]}


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


def test_module_has_what_the_modules_of_other_charms_have():
    assert blocks("variables.tf", "variable").keys() >= CONVENTIONAL
    assert blocks("outputs.tf", "output").keys() == {"app_name", "provides", "requires"}


def test_application_has_what_the_provider_takes():
    application = blocks("main.tf", "resource")["juju_application"]['"istio_integrator"']
    given = {name for name in application if not name.startswith("__")}
    assert given >= REQUIRED
    assert given - REQUIRED - OPTIONAL == set()
    (charm,) = application["charm"]
    assert {name for name in charm if not name.startswith("__")} <= OF_A_CHARM


def test_provider_has_an_upper_bound():
    (terraform,) = hcl2.loads((MODULE / "versions.tf").read_text())["terraform"]
    (providers,) = terraform["required_providers"]
    assert re.search(r"< \d", providers["juju"]["version"])
