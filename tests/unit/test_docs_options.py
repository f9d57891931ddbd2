"""Each option is described in two lines with an example, and says which pods it touches."""

import pathlib
import re
from typing import Any

import pytest
import yaml

from istio_integrator.config import config

ROOT = pathlib.Path(__file__).parents[2]
OPTIONS: dict[str, Any] = yaml.safe_load((ROOT / "config.yaml").read_text())["options"]
NEEDS = {
    "gateway-service-annotations": {"gateway-service": "istio-ingress/gateway"},
}
"""What an example stands beside."""


@pytest.mark.parametrize("name", OPTIONS)
def test_description_is_two_lines_and_an_example_that_the_charm_takes(name):
    *lines, last = OPTIONS[name]["description"].strip().splitlines()
    assert 1 <= len(lines) <= 2
    example = re.fullmatch(r"Example: `([^`]+)`(?: or `([^`]+)`)?", last)
    assert example
    default = OPTIONS[name]["default"]
    for value in filter(None, example.groups()):
        typed = type(default)(value) if not isinstance(default, bool) else value == "true"
        config.Config.model_validate({**NEEDS.get(name, {}), name: typed})
        assert typed != default
