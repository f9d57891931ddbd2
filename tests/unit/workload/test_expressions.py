"""Regular expressions of the decisions and of the contract take linear time on any text."""

import importlib
import inspect
import itertools
import pkgutil
import re
import time
from typing import Any

import pytest
from sidecar_lifecycle import decide, model
from sidecar_lifecycle.decide import mutate, proxy_config

import integrator_contract
from integrator_contract import selectors

COUNT = 50_000
"""Characters: what is linear takes some milliseconds, what is quadratic over two seconds."""
BEGINNINGS = ("", "a", "a=", "a in (", "{", '"', "---\n", "maximum ", 'a "')
REPEATED = (
    *("a", "1", " ", "\n", '"', "'", "\\", "[", "{", "(", "!", "#", "<", ",", "/", "."),
    *(" \n", " #\n", '\\"', "''", "a.", "1.", "1,", "-1", "(,)", "istio.io.", ":1.1", "v1.1"),
    *(proxy_config.HOLD, "hold_", "\n---x", "\\ud", "exceeded quota: ", 'violates PodSecurity "'),
    *('admission webhook "', 'failed calling webhook "', "policy 'a' with binding '"),
    "maximum a b ",
)
"""Pieces that the expressions match in many ways, or nearly."""


def expressions() -> dict[str, tuple[re.Pattern[Any], bool]]:
    """Return the expressions that modules keep, and whether they look anywhere in a text."""
    found: dict[str, tuple[re.Pattern[Any], bool]] = {}
    for package in (decide, model, integrator_contract):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            source = inspect.getsource(module)
            for name, value in vars(module).items():
                if isinstance(value, re.Pattern):
                    asked = set(re.findall(rf"\b{name}\.(\w+)\(", source))
                    searches = not asked or not asked <= {"match", "fullmatch"}
                    found[f"{info.name}.{name}"] = value, searches
    return found


@pytest.mark.parametrize("name", expressions())
def test_an_expression_takes_no_longer_for_each_character_of_a_longer_text(name: str):
    expression, searches = expressions()[name]
    for beginning, piece in itertools.product(BEGINNINGS, REPEATED):
        text: Any = beginning + piece * (COUNT // len(piece)) + "!"
        if isinstance(expression.pattern, bytes):
            text = text.encode()
        began = time.process_time()
        if searches:
            expression.findall(text)
        else:
            expression.fullmatch(text)
        assert time.process_time() - began < 1, (beginning, piece)


@pytest.mark.parametrize("text", ["." * COUNT, ":" * COUNT, "a." * COUNT + "/", "/" * COUNT])
def test_an_image_without_end_is_written_in_full_at_once(text: str):
    assert mutate.complete_image(text).endswith(text)


@pytest.mark.parametrize("piece", ["a,", "(,", "),", ","])
def test_the_longest_selector_is_refused_within_a_second(piece: str):
    began = time.process_time()
    with pytest.raises(ValueError, match="is not a requirement"):
        selectors.parse(piece * (selectors.LONGEST // len(piece)))
    assert time.process_time() - began < 1
