"""Where Python can be changed, and what it becomes; runs in the environment that has cosmic-ray.

Reads a request as JSON and answers as JSON. Of `{"find": [path, ...]}` it lists every place where
an operator can change something; of `{"make": [place, ...]}` it returns the text of its file then.
"""

import ast
import functools
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from cosmic_ray import mutating, plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.operators import operator
from parso.python import tree

THEIRS = (
    *("AddNot", "NumberReplacer", "ZeroIterationForLoop"),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ReplaceUnaryOperator_Delete_Not"),
    *(
        f"ReplaceBinaryOperator_{change}"
        for change in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "BitOr_BitAnd", "BitAnd_BitOr")
    ),
    *(
        f"ReplaceComparisonOperator_{change}"
        for change in (
            *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"),
            *("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_GtE", "LtE_Gt", "Gt_LtE", "GtE_Lt"),
        )
    ),
)
"""Those of cosmic-ray that stand for a mistake; most others end in a TypeError at once."""


class _Ours(operator.Operator):
    def mutation_positions(self, node: Any) -> Iterator[Any]:
        if self.fits(node):
            yield node.start_pos, node.end_pos

    def fits(self, node: Any) -> bool:
        raise NotImplementedError

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


class ForgetCall(_Ours):
    """Leave out a call whose result nobody uses."""

    def fits(self, node: Any) -> bool:
        if node.type not in ("atom_expr", "power") or node.parent.type != "simple_stmt":
            return False
        return node.children[-1].type == "trailer" and node.children[-1].children[0].value == "("

    def mutate(self, node: Any, index: int) -> Any:
        return tree.Name("pass", node.start_pos, node.get_first_leaf().prefix)


class ForgetArgument(_Ours):
    """Give None for an argument that has a name, which often means: whatever it is."""

    def fits(self, node: Any) -> bool:
        is_constant = node.type == "argument" and node.children[-1].type in ("keyword", "number")
        return node.type == "argument" and node.children[1] == "=" and not is_constant

    def mutate(self, node: Any, index: int) -> Any:
        node.children[2] = tree.Keyword("None", node.start_pos, "")
        return node


class ForgetException(_Ours):
    """Catch nothing."""

    def fits(self, node: Any) -> bool:
        return node.type == "except_clause"

    def mutate(self, node: Any, index: int) -> Any:
        node.children[1] = tree.Name("()", node.start_pos, " ")
        return node


class ReplaceIn(_Ours):
    """Turn around whether something is in something."""

    def fits(self, node: Any) -> bool:
        if node.type == "comp_op":
            return node.children[0].value == "not"
        return node.type == "keyword" and node.value == "in" and node.parent.type == "comparison"

    def mutate(self, node: Any, index: int) -> Any:
        turned = "in" if node.type == "comp_op" else "not in"
        return tree.Keyword(turned, node.start_pos, node.get_first_leaf().prefix)


OURS = {each.__name__: each for each in (ForgetCall, ForgetArgument, ForgetException, ReplaceIn)}


def _operator(name: str) -> operator.Operator:
    return OURS[name]() if name in OURS else plugins.get_operator(f"core/{name}")()


@functools.cache
def _read(path: str) -> str:
    return pathlib.Path(path).read_text()


def find(path: str) -> Iterator[dict[str, Any]]:
    """List the places of a file."""
    nodes = list(ast_nodes(get_ast(_read(path))))
    for name in (*THEIRS, *OURS):
        changing = _operator(name)
        spans = (span for node in nodes for span in changing.mutation_positions(node))
        for occurrence, (start, end) in enumerate(spans):
            yield {
                "file": path,
                "operator": name,
                "occurrence": occurrence,
                "start": start,
                "end": end,
            }


def make(place: dict[str, Any]) -> str | None:
    """Return the whole text of a file with the change at a place; None where it is no Python."""
    text = mutating.mutate_code(
        _read(place["file"]), _operator(place["operator"]), place["occurrence"]
    )
    try:
        ast.parse(text or "")
    except SyntaxError:
        return None
    return text


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    if "find" in request:
        json.dump([place for path in request["find"] for place in find(path)], sys.stdout)
    else:
        json.dump([make(place) for place in request["make"]], sys.stdout)


if __name__ == "__main__":
    main()
