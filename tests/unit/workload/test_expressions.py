"""Regular expressions of the workload, each on what it finds hardest."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import pytest
import sidecar_lifecycle
from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.decide import hold, mutate

import integrator_contract
from integrator_contract import selectors

COUNT = 300_000
"""Repetitions: what is linear takes some milliseconds, what is quadratic a quarter of an hour."""

# By the name of a module and of its expression: texts that nearly match in many ways.
HARDEST: dict[str, tuple[Callable[[int], str], ...]] = {
    "pods._REGISTRY": (
        lambda n: "a." * n + "!",
        lambda n: "a.b" + "/a" * n + "!",
        lambda n: "a" * n + "!",
    ),
    "model.bounded._SPACE": (lambda n: " \n" * n + "x",),
    "model.bounded._SURROGATE": (lambda n: "\\" * n, lambda n: "\\ud" * n),
    "model.depth._TOKENS": (lambda n: '"' + '\\"' * n, lambda n: '"' * n, lambda n: "[" * n),
    "decide.hold._BLANK": (lambda n: " \n" * n + "x",),
    "decide.hold._BLOCK": (lambda n: " " * n + "x", lambda n: "a" * n, lambda n: '"' + "a" * n),
    "decide.hold._EMPTY_FLOW": (lambda n: " " * n, lambda n: "{" + " " * n),
    "decide.hold._FLOW": (lambda n: " " * n,),
    "decide.hold._HEAD": (
        lambda n: " #\n" * n,
        lambda n: "---" + " " * n,
        lambda n: "---\n" + " #\n" * n + " " * n,
        lambda n: " " * n + "#" * n,
    ),
    "decide.hold._LONE_FLOW": (lambda n: "{}" + " \n" * n + "x", lambda n: "{" + " " * n),
    "decide.hold._ODD": (lambda n: "\r\n" * n, lambda n: "\\" * n),
    "decide.hold._FIRST": (lambda n: "\n" * n, lambda n: "\n--" * n, lambda n: "\n---x" * n),
    "decide.hold._KEY": (lambda n: hold.HOLD * n, lambda n: '"' * n),
    "decide.hold._KEY_LINE": (lambda n: hold.HOLD + " " * n,),
    "decide.hold._KEY_WITH_COLON": (lambda n: hold.HOLD * n,),
    "decide.hold._NAMED": (lambda n: "holdApplication" * n, lambda n: "hold_" * n),
    "decide.hold._ODD_LINE": (lambda n: "<" * n,),
    "decide.hold._ODD_PIECE": (lambda n: '"' + "hold" * n, lambda n: "'" * n),
    "decide.hold._PIECE": (
        lambda n: '"' + '\\"' * n,
        lambda n: '"' + ' \\"' * n,
        lambda n: "'" + "''" * n,
        lambda n: "'" + '"' * n,
        lambda n: " #" * n,
    ),
    "decide.mutate._EMPTY_PLACE": (
        lambda n: "," + " " * n + "x",
        lambda n: " " * n,
        lambda n: ", x" * n,
    ),
    "decide.mutate._PORT": (lambda n: "1," * n, lambda n: "1" * n),
    "pods._OTHERS": (lambda n: "a." * n, lambda n: "a.kubernetes.io" * n),
    "pods._OTHERS_LABELS": (lambda n: "a." * n, lambda n: "istio.io" * n),
    "selectors._KEY_ALONE": (lambda n: "a." * n + "/", lambda n: "a" * n + "!"),
    "selectors._EQUALITY": (
        lambda n: "a" * n + "!",
        lambda n: "a." * n + "/",
        lambda n: "a" + " " * n + "!",
        lambda n: "a=" + "b." * n + "!",
    ),
    "selectors._EXISTS": (lambda n: "!" + " " * n, lambda n: "a." * n + "/a." + "b." * n),
    "selectors._MARK": (lambda n: "(,)" * n,),
    "selectors._SET": (
        lambda n: "a" + " " * n + "!",
        lambda n: "a in " + " " * n,
        lambda n: "a in (" + "(" * n,
    ),
    "selectors._VALUE": (lambda n: "a." * n,),
    "decide.convergence.trial._ORDINAL": (lambda n: "-1" * n, lambda n: "-" + "1" * n + "x"),
    "refusals._AUTHORIZER": (lambda n: "a" * n, lambda n: 'a "' + "b" * n),
    "refusals._CONSTRAINTS": (lambda n: "unable to validate " * n,),
    "refusals._DENIED": (
        lambda n: 'admission webhook "' * n,
        lambda n: 'admission webhook "a" denied the request' * n,
    ),
    "refusals._ISTIO": (lambda n: "istio.io." * n, lambda n: "." * n),
    "refusals._LIMITS": (
        lambda n: "a" * n,
        lambda n: "maximum a b " * n,
        lambda n: "maximum " + "a" * n,
    ),
    "refusals._PLUGIN": (lambda n: "a" * n, lambda n: 'a "' + "b" * n),
    "refusals._POD_SECURITY": (lambda n: 'violates PodSecurity "' * n,),
    "refusals._POLICY": (lambda n: "policy '" * n, lambda n: "policy 'a' with binding '" * n),
    "refusals._QUOTA": (lambda n: "exceeded quota: " * n,),
    "refusals._UNREACHABLE": (lambda n: 'failed calling webhook "' * n,),
    "decide.stale._TAG": (lambda n: "1" * n, lambda n: "1." * n, lambda n: "v1.1" * n),
}
ASKED_OF_WHOLE_TEXTS = (
    "decide.convergence.trial._ORDINAL",
    "refusals._AUTHORIZER",
    "refusals._ISTIO",
    "refusals._PLUGIN",
    "decide.hold._BLANK",
    "decide.hold._BLOCK",
    "decide.hold._EMPTY_FLOW",
    "decide.hold._FIRST",
    "decide.hold._FLOW",
    "decide.hold._HEAD",
    "decide.hold._KEY",
    "decide.hold._KEY_LINE",
    "decide.hold._KEY_WITH_COLON",
    "decide.hold._LONE_FLOW",
    "decide.hold._ODD_LINE",
    "decide.hold._ODD_PIECE",
    "pods._REGISTRY",
    "selectors._EQUALITY",
    "pods._OTHERS",
    "pods._OTHERS_LABELS",
    "selectors._EXISTS",
    "selectors._KEY_ALONE",
    "selectors._SET",
    "selectors._VALUE",
)
"""By `match` or `fullmatch` only: they are tried at one place of a text, not at each."""


def expressions() -> dict[str, re.Pattern[Any]]:
    """Return the expressions that modules of the workload and its contract keep, by name."""
    found: dict[str, re.Pattern[Any]] = {}
    for package in (sidecar_lifecycle, integrator_contract):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            short = info.name.removeprefix(f"{package.__name__}.")
            for name, value in vars(module).items():
                if isinstance(value, re.Pattern):
                    found[f"{short}.{name}"] = value
    return found


def test_for_every_expression_its_hardest_texts_are_known():
    assert set(expressions()) == set(HARDEST)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HARDEST)
def test_an_expression_takes_no_longer_for_each_character_of_a_longer_text(name: str):
    expression = expressions()[name]
    for text in HARDEST[name]:
        if name in ASKED_OF_WHOLE_TEXTS:
            expression.fullmatch(text(COUNT))
        elif isinstance(expression.pattern, bytes):
            expression.findall(text(COUNT).encode())
        else:
            expression.findall(text(COUNT))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["." * COUNT, ":" * COUNT, "a." * COUNT + "/", "/" * COUNT])
def test_an_image_without_end_is_written_in_full_at_once(text: str):
    assert mutate.full_image(text).endswith(text)


@pytest.mark.parametrize("text", ["a," * COUNT + "a", "(," * COUNT, ")," * COUNT, "," * COUNT])
def test_a_selector_without_end_is_refused_at_once(text: str):
    with pytest.raises(ValueError, match="at most 4096 characters"):
        selectors.parse(text)


@given(st.text("(),a= ", max_size=12))
def test_selectors_are_split_at_the_commas_outside_of_brackets(text: str):
    assert selectors._parts(text) == re.split(r",(?![^(]*\))", text)
