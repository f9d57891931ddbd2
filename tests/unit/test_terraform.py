"""The Terraform modules offer what the charm has; docs/generate.py writes their lists."""

import pathlib
import re

import hcl2
import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[2]
MAIN = (ROOT / "terraform/main.tf").read_text()
VARIABLES = (ROOT / "terraform/variables.tf").read_text()
PRODUCT = ROOT / "terraform/product"
INTEGRATED = {
    "auth": {"ingress", "ingress_auth"},
    "core": {"ingress"},
    "katib": {"ingress"},
    "kfp": {"ingress"},
    "kserve": {"gateway_info"},
    "notebooks": {"ingress"},
    "tensorboard": {"ingress", "gateway_info"},
}
"""Components that have applications which the bundle relates to istio-pilot, with those inputs."""


@pytest.mark.parametrize("module", ["terraform", "terraform/product"])
def test_every_variable_is_used_and_every_one_that_is_used_exists(module):
    main, variables = (
        (ROOT / module / f"{name}.tf").read_text() for name in ("main", "variables")
    )
    defined = set(re.findall(r'^variable "(\w+)"', variables, re.MULTILINE))
    assert set(re.findall(r"\bvar\.(\w+)", main)) == defined


def test_product_gives_each_component_the_endpoints_of_its_applications():
    with (PRODUCT / "main.tf").open() as file:
        modules = {
            name.strip('"'): body
            for each in hcl2.load(file)["module"]
            for name, body in each.items()
        }
    related = {
        name: {key for key, value in body.items() if value == f"${{local.mesh.{key}}}"}
        for name, body in modules.items()
    }
    assert {name: keys for name, keys in related.items() if keys} == INTEGRATED


def test_product_takes_each_module_of_others_at_one_commit():
    sources = re.findall(r'source += "git::([^"]+)"', (PRODUCT / "main.tf").read_text())
    assert len(sources) == len(
        [each for each in sources if re.search(r"\?ref=[0-9a-f]{40}$", each)]
    )
    commits = {each.partition("?ref=")[2] for each in sources if "kubeflow-solutions" in each}
    assert len(commits) == 1


def test_charm_base_and_resources_are_those_that_are_packed():
    metadata = yaml.safe_load((ROOT / "metadata.yaml").read_text())
    platforms = yaml.safe_load((ROOT / "charmcraft.yaml").read_text())["platforms"]
    (base,) = {platform.rpartition(":")[0] for platform in platforms}
    assert f'name     = "{metadata["name"]}"' in MAIN
    assert f'default     = "{base}"' in VARIABLES
    assert all(name in VARIABLES for name in metadata["resources"])
