"""The hold in proxy.istio.io/config, on text of any kind."""

import json

import yaml
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from sidecar_lifecycle.decide import proxy_config
from yaml import loader

from integrator_contract.reasons import Reason

CAMEL = proxy_config.HOLD
SNAKE = "hold_application_until_proxy_starts"


def parse(text):
    """Return the mapping of the first document, None where there is none."""
    if not text.strip(" \t\r\n"):
        # A tab alone does not parse, but there is nothing in it to keep either.
        return {}
    try:
        for document in yaml.load_all(text, loader.SafeLoader):
            return {} if document is None else document if isinstance(document, dict) else None
    # A KeyError for `!!bool x`, an IndexError for an empty `!!int`.
    except (yaml.YAMLError, ValueError, KeyError, IndexError):
        return None
    return {}


NAMES = st.sampled_from(
    ["concurrency", "proxyMetadata", "drain-duration", "a b", CAMEL, SNAKE, "x.y", "_z", "'q"]
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


def assert_rule_holds(text, held=True):
    before = parse(text)
    merged = proxy_config.insert_setting(text, CAMEL, held)
    says_itself = before is not None and not before.keys().isdisjoint((CAMEL, SNAKE))
    if isinstance(merged, Reason):
        assert says_itself or merged != Reason.CONFIG_SAYS_ITSELF
        return
    assert not says_itself
    after = parse(merged)
    if before is None:
        # Istiod reports what does not parse; it must not begin to parse to something else.
        assert after is None
    else:
        assert after == {CAMEL: held, **before}
    assert proxy_config.insert_setting(merged, CAMEL, held) == Reason.CONFIG_SAYS_ITSELF


# Shrinking a document of 2,000 characters takes five minutes.
@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(documents(), st.booleans())
@example(f"concurrency: 2\nx.y: {'x' * 1995}", True)
def test_a_document_parses_to_what_it_did_plus_the_hold(text, held):
    assert_rule_holds(text, held)


NAMINGS = [
    CAMEL,
    SNAKE,
    f"# {CAMEL}: false\n",
    f"\n{CAMEL}: false\n",
    f" {SNAKE}: x",
    f'"{CAMEL}": false, ',
    f"{{{CAMEL}: 1}}",
    f"'{SNAKE}'",
    f"<<: {{{CAMEL}: 1}}",
]


@st.composite
def naming(draw, mappings=MAPPINGS):
    """Write a mapping, and name the hold anywhere in it."""
    text = draw(documents(mappings))
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(NAMINGS)) + text[at:]
    return text


@given(naming())
@example("a b:\n  concurrency: '\nholdApplicationUntilProxyStarts: false\n'\n")
def test_a_value_that_names_the_hold_anywhere_is_left_with_a_true_reason_or_held(text):
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
@example("---  a:\n  b: 1\n")
@example("a:\r\n  b: 1\r\n")
@example("{#a: b\n}")
@example("--- {a: 1}\n--- {b: 2}")
def test_text_of_any_kind_is_left_or_still_parses(text):
    assert_rule_holds(text)
