"""Text from outside is parsed, or rejected within bounds of time and memory."""

import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import bounded
from tests.unit.cases import cases
from tests.unit.hostile_texts import DEEP, MERGED, bomb

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)
TEXTS = (
    st.text() | st.text("{}[]:,-&*!?|>'\"%#~ \n\ta1\\ud8", max_size=60) | VALUES.map(json.dumps)
)


@given(VALUES)
def test_json_is_read_as_it_was_written(value):
    for text in (json.dumps(value), json.dumps(value).encode(), json.dumps(value, indent=1)):
        assert bounded.read_json(text) == value


@given(VALUES, st.booleans())
def test_json_is_yaml_too(value, ascii_only):
    text = json.dumps(value)
    try:
        read = bounded.read_yaml(text)
    except bounded.DocumentError as error:
        # A key of YAML is at most so long, and some texts have a meaning.
        assert "is not valid YAML" in str(error) or "which YAML gives a meaning" in str(error)  # noqa: PT017
    else:
        assert read == value


@given(TEXTS | st.binary(max_size=60))
def test_any_text_is_read_or_refused_in_words(text):
    for read in (bounded.read_json, bounded.read_yaml):
        if isinstance(text, bytes) and read is bounded.read_yaml:
            continue
        try:
            read(text)
        except bounded.DocumentError as error:
            assert 0 < len(str(error)) < 400  # noqa: PT017


ALIAS = "^has an alias or an anchor: write each value out$"
TOO_DEEP = "nests more than 64 lists or mappings$"
MANY = "has more than 20000 values"


@pytest.mark.parametrize("read", [bounded.read_json, bounded.read_yaml])
@cases(
    ("text", "why"),
    deep=(DEEP, TOO_DEEP),
    just_too_deep=("[" * 65 + "]" * 65, TOO_DEEP),
    deep_without_end=('{"a":' * 10_000, TOO_DEEP),
    long=("x" * 65537, "has 65537 characters"),
    many_values=("[" + "{}," * 20_000 + "{}]", MANY),
    long_number=("1" * 5000, "a number of 5000 characters"),
    half_a_character=(r'"\ud800"', "half a character|surrogates not allowed"),
    two_documents=("{}\n---\n{}", "is no JSON|is not valid YAML: expected a single document"),
)
def test_document_beyond_the_bounds_is_refused_and_named(read, text, why):
    with pytest.raises(bounded.DocumentError, match=why):
        read(text)


@cases(
    ("text", "why"),
    half_a_character_as_it_is=('"\ud800"', "surrogates not allowed"),
    not_a_number=("[NaN]", "^has NaN, which is no number of JSON$"),
    bytes=(b'"\xff"', "is no JSON: 'utf-8' codec"),
    empty=("", "is no JSON"),
)
def test_what_is_no_json_is_refused(text, why):
    with pytest.raises(bounded.DocumentError, match=why):
        bounded.read_json(text)


# Without its bounds a reader would take minutes for some of these.
@cases(
    ("text", "why"),
    deep_blocks=("- " * 1000, TOO_DEEP),
    hexadecimal=(f"0x{'f' * 4000}", "a number of 4002 characters"),
    aliases=(bomb("a: &a [x]\n", "[{}]"), ALIAS),
    merge_keys=(MERGED, ALIAS),
    contains_itself=("&a {x: *a}", ALIAS),
    tag=(
        "!!python/object/apply:os.abort []",
        "^has the tag 'tag:yaml.org,2002:python/object/apply:os'$",
    ),
    tag_of_a_value=("a: !!binary aGk=", "^has the tag 'tag:yaml.org,2002:binary'$"),
    alias_without_its_anchor=("[*a]", ALIAS),
    no_date=("2026-13-01", "^is not valid YAML: month must be "),
    meaning=("a: =", "^has '=', which YAML gives a meaning: quote it$"),
    not_closed=("a: [b", "^is not valid YAML: expected ',' or ']'.*, line 1, column 6$"),
    no_YAML=("a: b\n{", "is not valid YAML: .*, line 2, column 1$"),
)
def test_what_only_yaml_has_is_refused(text, why):
    with pytest.raises(bounded.DocumentError, match=why):
        bounded.read_yaml(text)


def test_character_of_two_escapes_is_one():
    assert bounded.read_yaml(r'a: "\ud83d\ude00"') == {"a": "😀"}
    assert bounded.read_json(r'{"a": "\ud83d\ude00"}') == {"a": "😀"}


def test_tags_of_plain_text_and_dates_are_read():
    assert bounded.read_yaml("[!!str 1, ! a]") == ["1", "a"]
    assert bounded.read_yaml("2026-01-02") == datetime.date(2026, 1, 2)


@pytest.mark.parametrize("read", [bounded.read_json, bounded.read_yaml])
def test_reader_of_long_documents_has_its_own_limit(read):
    text = json.dumps("x" * bounded.LONGEST)
    assert read(text, longest=len(text)) == json.loads(text)
    assert len(read(json.dumps("x" * (bounded.LONGEST - 2)))) == bounded.LONGEST - 2
    for longest in (len(text) - 1, 9):
        with pytest.raises(bounded.DocumentError, match=f"65538 characters, more than {longest}"):
            read(text, longest=longest)


def test_most_that_may_be_read_is_read():
    for read in (bounded.read_json, bounded.read_yaml):
        assert read("9" * 40) == int("9" * 40)
        assert len(read(f"[{'1,' * 19_998}1]")) == 19_999
    text = "[" * 64 + "]" * 64
    assert bounded.read_json(text) == bounded.read_yaml(text) == json.loads(text)


@given(VALUES)
def test_document_that_is_not_deep_is_left_as_it_is(tree):
    text = json.dumps(tree).encode()
    assert bounded.cut_depth(text) == text


@given(VALUES, st.integers(bounded.DEEPEST, 3 * bounded.DEEPEST))
def test_what_is_nested_too_deep_is_cut_and_all_else_stays(tree, levels):
    nested = {"leaf": tree}
    for _ in range(levels):
        nested = [nested]
    around = {"before": tree, "deep": nested, "too": nested, 'a "[': '\\"{', "after": tree}
    found = json.loads(bounded.cut_depth(json.dumps(around).encode()))

    assert found == {**around, "deep": found["deep"], "too": found["deep"]}
    inner, height = found["deep"], 0
    while isinstance(inner, list):
        inner, height = inner[0] if inner else None, height + 1
    assert inner is None
    assert height == bounded.DEEPEST - 1


def test_large_document_that_is_nested_deep_is_not_decoded_twice():
    text = b'{"x": "%s", "deep": %s}' % (b"x" * bounded.LARGEST_DEEP, b"[" * 5000 + b"]" * 5000)
    with pytest.raises(RecursionError):
        bounded.cut_if_deep(json.loads, text)
    deep = b'{"deep": %s}' % (b"[" * 5000 + b"]" * 5000)
    small = deep + b" " * (bounded.LARGEST_DEEP - len(deep))
    with pytest.raises(RecursionError):
        bounded.cut_if_deep(json.loads, small + b" ")
    assert bounded.cut_if_deep(json.loads, small).keys() == {"deep"}
