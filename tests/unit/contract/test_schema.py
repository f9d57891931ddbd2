"""The word by which a charm and an image of another contract notice each other."""

import sys
import types

from integrator_contract import schema
from tests.unit.cases import cases

SOURCE = '''
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
    ends: list[int] = dataclasses.field(default_factory=list)
'''


def word(source):
    module = types.ModuleType("declared")
    # dataclasses look the module of a class up by its name.
    sys.modules["declared"] = module
    exec(source, vars(module))
    return schema.compute_digest([module])


@cases(
    ("old", "new", "is_same"),
    another_field=("    name: str\n", "    name: str\n    uid: str\n", False),
    a_field_less=("    since: int = 1\n", "", False),
    a_field_that_is_required=("    since: int = 1\n", "    since: int\n", False),
    a_list_that_is_required=(" = dataclasses.field(default_factory=list)", "", False),
    another_name=("    since: int", "    until: int", False),
    another_type=("    since: int", "    since: float", False),
    another_word=('"manual"]', '"manual", "off"]', False),
    another_value=('"stop"', '"halt"', False),
    another_description=("About a pod.", "About one pod.", True),
    another_default=("since: int = 1", "since: int = 2", True),
    another_order=(
        "    name: str\n    since: int = 1\n",
        "    since: int = 1\n    name: str\n",
        True,
    ),
)
def test_another_shape_is_another_word_and_nothing_else_is(old, new, is_same):
    assert (word(SOURCE) == word(SOURCE.replace(old, new))) is is_same
