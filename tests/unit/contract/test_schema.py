"""The word by which a charm and an image of another contract notice each other."""

import os
import subprocess
import sys
import types

import pytest

from integrator_contract import schema

SOURCE = '''
from __future__ import annotations
import dataclasses, enum
from typing import Literal

How = Literal["auto", "manual"]

class Action(enum.StrEnum):
    STOP = "stop"

@dataclasses.dataclass(kw_only=True)
class Answer:
    """About a pod."""
    name: str
    since: int = 1
'''


def word(source):
    module = types.ModuleType("declared")
    # dataclasses look the module of a class up by its name.
    sys.modules["declared"] = module
    exec(source, vars(module))
    return schema.digest([module])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    name: str\n", "    name: str\n    uid: str\n"),
        ("    since: int = 1\n", ""),
        ("    since: int = 1\n", "    since: int\n"),
        ("    since: int", "    until: int"),
        ("    since: int", "    since: float"),
        ('"manual"]', '"manual", "off"]'),
        ('"stop"', '"halt"'),
    ],
)
def test_another_shape_is_another_word(old, new):
    assert word(SOURCE) != word(SOURCE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("About a pod.", "About one pod."),
        ("since: int = 1", "since: int = 2"),
        ("since: int = 1", "since: int = dataclasses.field(default=1, metadata={'help': 'x'})"),
        ("    name: str\n    since: int = 1\n", "    since: int = 1\n    name: str\n"),
    ],
)
def test_what_is_only_said_otherwise_is_the_same_word(old, new):
    assert word(SOURCE) == word(SOURCE.replace(old, new))


def test_every_process_has_the_same_word():
    code = "from integrator_contract import schema; print(schema.SCHEMA)"
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert said == {schema.SCHEMA}
