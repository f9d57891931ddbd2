"""Label selectors: parsed as kubectl does, and matched as Kubernetes does."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import selectors
from tests.unit.cases import cases

R = selectors.Requirement
LONG = f"{'p' * 60}.example.com/{'a' * 63}"
WORDS = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?", fullmatch=True)


@cases(
    ("text", "want"),
    empty=("", ()),
    blank=("  ", ()),
    equals=("a=b", (R("a", "In", ("b",)),)),
    double_equals=("a==b", (R("a", "In", ("b",)),)),
    not_equals=("a!=b", (R("a", "NotIn", ("b",)),)),
    empty_value=("a=", (R("a", "In", ("",)),)),
    exists=("a", (R("a", "Exists"),)),
    longest=(",".join(["a=b"] * 1024) + " ", (R("a", "In", ("b",)),) * 1024),
    long_prefix=(f"{LONG}={'b' * 63}", (R(LONG, "In", ("b" * 63,)),)),
    does_not_exist=("!a", (R("a", "DoesNotExist"),)),
    in_=("a in (b, c)", (R("a", "In", ("b", "c")),)),
    several=(
        "x.io/a notin (b),c=d , !e",
        (R("x.io/a", "NotIn", ("b",)), R("c", "In", ("d",)), R("e", "DoesNotExist")),
    ),
)
def test_selector_is_parsed_as_kubectl_does(text, want):
    assert selectors.parse(text) == want


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a in b", "'a in b' is not a requirement such as app=web, tier in \\(a,b\\) or !legacy$"),
        ("a=b c", "'a=b c' is not"),
        ("=b", "'=b' is not"),
        ("a,,b", "'' is not"),
        ("a in (b", "'a in \\(b' is not"),
        ("-a=b", "'-a=b' is not"),
        ("a=b/", "'a=b/' is not"),
        ("a>1", "'a>1' is not"),
        ("a in (b/)", "^'a in \\(b/\\)' has 'b/', which is not a label value$"),
        (f"a={'b' * 64}", "longer than 63"),
        (f"x/{'a' * 64}", "longer than 63"),
        (f"a in (b,{'c' * 64})", "longer than 63"),
        (",".join(["a=b"] * 1025), "^a selector has at most 4096 characters$"),
    ],
)
def test_selector_that_is_none_is_refused_with_its_part(text, why):
    with pytest.raises(ValueError, match=why):
        selectors.parse(text)


VALUES = st.lists(WORDS, min_size=1, max_size=3)
OPERATORS = st.sampled_from(["in", "notin"])


@given(st.lists(st.tuples(WORDS, OPERATORS, VALUES), max_size=4))
def test_selector_of_sets_comes_back_as_its_parts(parts):
    text = ",".join(f"{key} {how} ({','.join(values)})" for key, how, values in parts)
    operators = {"in": "In", "notin": "NotIn"}

    assert selectors.parse(text) == tuple(
        R(key, operators[how], tuple(values)) for key, how, values in parts
    )


@given(st.text())
def test_any_text_parses_or_is_refused(text):
    with contextlib.suppress(ValueError):
        selectors.parse(text)


@cases(
    ("text", "labels", "want"),
    nothing_selects_nothing=("", {"a": "b"}, False),
    exists=("a", {"a": ""}, True),
    exists_absent=("a", {}, False),
    absent=("!a", {}, True),
    absent_but_it_exists=("!a", {"a": ""}, False),
    equal=("a=b", {"a": "b"}, True),
    not_equal=("a=b", {"a": "c"}, False),
    empty=("a=", {"a": ""}, True),
    empty_is_not_absent=("a=", {}, False),
    an_absent_label_has_no_value=("a!=b", {}, True),
    none_of_those=("a notin (b,c)", {"a": "d"}, True),
    one_of_several=("a in (b,c)", {"a": "c"}, True),
    not_one_of_several=("a in (b,c)", {"a": "d", "b": ""}, False),
    one_of_those=("a notin (b,c)", {"a": "c"}, False),
    all_are_met=("a=b,!c", {"a": "b"}, True),
    one_is_not_met=("a=b,!c", {"a": "b", "c": ""}, False),
)
def test_selector_matches_as_in_kubernetes(text, labels, want):
    assert selectors.matches(selectors.parse(text), labels) is want


def test_requirement_is_written_as_the_api_has_it():
    assert R("a", "In", ("b",)).as_expression() == {"key": "a", "operator": "In", "values": ["b"]}
    assert R("a", "Exists").as_expression() == {"key": "a", "operator": "Exists"}


@cases(
    ("is_valid", "valid", "invalid"),
    key=(
        *(selectors.is_key, ("a", "example.com/a", f"{'x' * 253}/{'a' * 63}")),
        (f"{'x' * 254}/a", "a" * 64, "/a", "a/", "a b", ""),
    ),
    value=(selectors.is_value, ("", "a" * 63), ("a" * 64, "a-")),
)
def test_key_and_value_of_a_label_are_checked(is_valid, valid, invalid):
    assert [text for text in (*valid, *invalid) if is_valid(text)] == [*valid]
