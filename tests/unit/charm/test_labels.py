import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import labels

R = labels.Requirement
WORDS = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", (), id="empty"),
        pytest.param("  ", (), id="blank"),
        pytest.param("a=b", (R("a", "In", ("b",)),), id="equals"),
        pytest.param("a==b", (R("a", "In", ("b",)),), id="double equals"),
        pytest.param("a!=b", (R("a", "NotIn", ("b",)),), id="not equals"),
        pytest.param("a=", (R("a", "In", ("",)),), id="empty value"),
        pytest.param("a", (R("a", "Exists"),), id="exists"),
        pytest.param("!a", (R("a", "DoesNotExist"),), id="does not exist"),
        pytest.param("a in (b, c)", (R("a", "In", ("b", "c")),), id="in"),
        pytest.param(
            "x.io/a notin (b),c=d , !e",
            (R("x.io/a", "NotIn", ("b",)), R("c", "In", ("d",)), R("e", "DoesNotExist")),
            id="several",
        ),
    ],
)
def test_selector_is_parsed_as_kubectl_does(text, expected):
    assert labels.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["a in b", "a=b c", "=b", "a,,b", "a in (b", "-a=b", "a=b/", "a>1"]
)
def test_selector_that_is_none_is_refused_with_its_part(text):
    with pytest.raises(ValueError, match="'"):
        labels.parse(text)


def test_selector_with_a_value_too_long_is_refused():
    with pytest.raises(ValueError, match="longer than 63"):
        labels.parse(f"a={'b' * 64}")


@given(st.lists(st.tuples(WORDS, st.sampled_from(["in", "notin"]), st.lists(WORDS, min_size=1))))
def test_selector_of_sets_comes_back_as_its_parts(parts):
    text = ",".join(f"{key} {how} ({','.join(values)})" for key, how, values in parts)
    operators = {"in": "In", "notin": "NotIn"}
    assert labels.parse(text) == tuple(
        R(key, operators[how], tuple(values)) for key, how, values in parts
    )


@given(st.text())
def test_any_text_parses_or_is_refused(text):
    with contextlib.suppress(ValueError):
        labels.parse(text)
