"""The text rule for proxy.istio.io/config, against a YAML parser and on text of any kind."""

import json
import re

import jinja2
import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st
from sidecar_lifecycle.rules import hold

import manifests

CAMEL = hold.HOLD
SNAKE = "hold_application_until_proxy_starts"


def parse(text):
    """Return the mapping of the first document, None where there is none."""
    if not text.strip(" \t\r\n"):
        # A tab alone does not parse, but there is nothing in it to keep either.
        return {}
    try:
        for document in yaml.safe_load_all(text):
            return {} if document is None else document if isinstance(document, dict) else None
    except (yaml.YAMLError, ValueError, KeyError):  # a KeyError for `!!bool x`
        return None
    return {}


NAMES = st.sampled_from(
    ["concurrency", "tracing", "proxyMetadata", "drain-duration", "a b", CAMEL, "x.y", "_z", "'q"]
)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(),
    st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12),
    st.sampled_from(["#", "a # b", "{", "}", ": ", "---", "\n", f"{CAMEL}: x", "|", "- a", "\\"]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)
MAPPINGS = st.dictionaries(NAMES, VALUES, max_size=4)


@st.composite
def documents(draw, mappings=MAPPINGS):
    """Write a mapping as people and programs do."""
    mapping = draw(mappings)
    style = draw(st.sampled_from(["json", "json-indented", "flow", "block", "quoted"]))
    if style.startswith("json"):
        text = json.dumps(mapping, indent=2 if style == "json-indented" else None)
    else:
        text = yaml.safe_dump(
            mapping,
            default_flow_style=style == "flow",
            default_style='"' if style == "quoted" else None,
            sort_keys=draw(st.booleans()),
            allow_unicode=draw(st.booleans()),
            explicit_start=draw(st.booleans()),
            explicit_end=draw(st.booleans()),
            indent=draw(st.integers(2, 4)),
        )
    if style in ("block", "quoted") and draw(st.booleans()) and "---" not in text:
        indent = " " * draw(st.integers(0, 3))
        text = "".join(f"{indent}{line}" for line in text.splitlines(keepends=True))
    head = draw(st.sampled_from(["", "\n", "# comment\n", "  # a: b\n\n", "# ---\n"]))
    tail = draw(st.sampled_from(["", "\n", "\n# end\n", "\n...\n", "\n---\nother: 1\n"]))
    text = head + text + tail
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def assert_rule_holds(text):
    before = parse(text)
    merge = hold.merge(text)
    if merge.value is None:
        assert merge.reason
        return
    after = parse(merge.value)
    if before is None:
        # Istiod reports what does not parse; it must not begin to parse to something else.
        assert after is None
    else:
        assert after == {CAMEL: True, **before}
        assert not (SNAKE in after and CAMEL in after)
    assert hold.merge(merge.value) == (None, "ConfigSaysItself")


@given(documents())
def test_a_document_parses_to_what_it_did_plus_the_hold(text):
    assert_rule_holds(text)


PIECES = [*"{}[]:,-#'\"\\&*?|>%!@` \t\r\n\x85\u2028ab1.", CAMEL, "a: 1", "\n---\n", ": ", "  "]


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
@example("{a: 1}: 2")
@example("{? a : b}")
@example("{,}")
@example("{a}")
@example("a: b: c")
@example("# c\ra:\n  x: 1")
@example("---\n---\na: 1")
@example("--- a: 1")
@example("a:\r\n  b: 1\r\n")
@example("{#a: b\n}")
@example("--- {a: 1}\n--- {b: 2}")
def test_text_of_any_kind_is_left_or_still_parses(text):
    assert_rule_holds(text)


@given(documents(), documents())
def test_documents_cut_and_glued_are_left_or_still_parse(first, second):
    assert_rule_holds(first[: len(first) // 2] + second[len(second) // 3 :])


@given(MAPPINGS, st.booleans())
def test_an_explicit_value_of_the_user_wins(mapping, value):
    text = json.dumps({**mapping, CAMEL: value})
    merge = hold.merge(text)

    assert merge.value is None or parse(merge.value)[CAMEL] is value


@given(MAPPINGS, st.booleans(), st.integers(0, 10**6))
def test_the_other_spelling_is_never_joined_by_ours(mapping, value, seed):
    mapping = {**mapping, SNAKE: value}
    assume(CAMEL not in mapping)
    text = yaml.safe_dump(mapping, default_flow_style=bool(seed % 2))

    assert hold.merge(text).value is None


PATTERNS = {
    "ODD": hold.ODD,
    "PRESENT": hold.PRESENT,
    "BLANK": hold.BLANK,
    "HEAD": hold.HEAD,
    "FLOW": hold.FLOW,
    "EMPTY_FLOW": hold.EMPTY_FLOW,
    "LONE_FLOW": hold.LONE_FLOW,
    "BLOCK": hold.BLOCK,
}


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_the_policy_has_the_same_pattern(pattern):
    template = (manifests.TEMPLATES / "admission-policy" / "10-policy.yaml.j2").read_text()
    literals = re.findall(r"r'''(.*?)'''|r'([^'\n]*)'", template)

    assert pattern in [triple or single for triple, single in literals]


def test_the_policy_has_the_same_words():
    template = (manifests.TEMPLATES / "admission-policy" / "10-policy.yaml.j2").read_text()

    assert jinja2.Environment(autoescape=True).parse(template)
    assert f"'{hold.ALONE}'" in template
    assert f"> {hold.LONGEST}" in template
