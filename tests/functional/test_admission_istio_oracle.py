"""The text rule for proxy.istio.io/config against istiod's own `mesh.ApplyProxyConfig`."""

from __future__ import annotations

import json
import subprocess

import hypothesis
import pytest
from hypothesis import strategies as st
from sidecar_lifecycle.decide import proxy_config

from integrator_contract.reasons import Reason
from testbed import programs
from tests.functional import admission_cases as table
from tests.unit.workload import test_rules_hold as texts

FIELDS = {
    "concurrency": st.integers(0, 64),
    "proxyMetadata": st.dictionaries(
        st.sampled_from(["ISTIO_META_A", "B", "x: y"]), st.text(max_size=8), max_size=3
    ),
    "tracing": st.fixed_dictionaries({"sampling": st.integers(0, 100)}),
    "drainDuration": st.sampled_from(["5s", "1m"]),
    "statusPort": st.integers(1, 65535),
    "image": st.fixed_dictionaries({"imageType": st.sampled_from(["distroless", "#x", "{"])}),
    "extraStatTags": st.lists(st.text(max_size=5), max_size=2),
    texts.CAMEL: st.booleans(),
    texts.SNAKE: st.booleans(),
    "unknown": texts.VALUES,
}
CONFIGURATIONS = st.fixed_dictionaries({}, optional=FIELDS)


def drawn(few, many):
    """Try few examples in the run of every change and many in the long one, and count on some."""
    return pytest.mark.parametrize(
        ("number", "least"), [few, pytest.param(*many, marks=pytest.mark.long)]
    )


@pytest.fixture(scope="module")
def judge():
    """Ask istiod's code what it makes of each value."""
    programs.ensure(["istio-oracle"])

    def judge(values):
        lines = "".join(f"{json.dumps(value)}\n" for value in values)
        command = [programs.binary("istio-oracle")]
        done = subprocess.run(command, input=lines, text=True, capture_output=True, check=True)
        # JSON's texts may have characters that end lines elsewhere.
        return [json.loads(line) for line in done.stdout.split("\n") if line]

    return judge


def examples(strategy, number):
    """Generate values; what is done with them is judged all at once."""
    found = []

    @hypothesis.settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(value):
        # Go reads no lone surrogates, and the API server lets none in.
        if value.isprintable() or value.encode(errors="ignore").decode() == value:
            found.append(value)

    collect()
    return found


def assert_istiod_agrees(judge, values):
    changed = [
        (value, merged)
        for value in values
        if not isinstance(merged := proxy_config.merge_hold(value, held=True), Reason)
    ]
    before = judge([value for value, _ in changed])
    after = judge([merged for _, merged in changed])
    fine = 0
    for (value, merged), old, new in zip(changed, before, after, strict=True):
        if "error" in old and value.strip(" \t\r\n"):
            assert "error" in new, (value, merged)
        else:
            # Blanks alone, some of which do not parse, become a configuration.
            config = old["config"] if "config" in old else judge(["{}"])[0]["config"]
            assert new.get("config") == {**config, proxy_config.HOLD: True}, (value, merged, new)
            fine += 1
    return fine, len(changed)


@drawn((600, 100), (3000, 500))
def test_configurations_are_what_they_were_plus_the_hold(judge, number, least):
    values = examples(texts.documents(CONFIGURATIONS), number)

    fine, changed = assert_istiod_agrees(judge, values)

    assert changed > least
    assert fine > 0.6 * changed


# The first examples are the simplest, and fewer of them are fine.
@drawn((600, 30), (3000, 300))
def test_configurations_that_name_the_hold_anywhere_are_what_they_were_plus_the_hold(
    judge, number, least
):
    values = examples(texts.naming(CONFIGURATIONS), number)

    fine, _ = assert_istiod_agrees(judge, values)

    assert fine > least


@pytest.mark.parametrize("number", [800, pytest.param(4000, marks=pytest.mark.long)])
def test_text_of_any_kind_is_what_it_was_plus_the_hold(judge, number):
    pieces = st.lists(st.sampled_from(texts.PIECES), max_size=20).map("".join)
    cut = st.builds(
        lambda first, second: first[: len(first) // 2] + second[len(second) // 3 :],
        texts.documents(CONFIGURATIONS),
        texts.documents(CONFIGURATIONS),
    )

    assert_istiod_agrees(judge, examples(pieces | cut, number))


def test_the_cases_of_the_table_are_accepted_by_istiod(judge):
    values = [case.annotations.get(table.CONFIG) for case in table.CONFIGURATIONS]
    values = [value for value in values if value]

    fine, changed = assert_istiod_agrees(judge, values)

    assert fine == changed > 20
