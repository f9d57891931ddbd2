"""The text rule for proxy.istio.io/config against istiod's own `mesh.ApplyProxyConfig`."""

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
        if not isinstance(
            merged := proxy_config.insert_setting(value, proxy_config.HOLD, setting=True), Reason
        )
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


TEXTS = texts.documents(CONFIGURATIONS)
CUT = st.builds(
    lambda first, second: first[: len(first) // 2] + second[len(second) // 3 :], TEXTS, TEXTS
)
WRITTEN = {
    "configurations": (TEXTS, 0.1),
    # The first examples are the simplest, and fewer of them are fine.
    "configurations that name the hold anywhere": (texts.naming(CONFIGURATIONS), 0.05),
    "any text": (st.lists(st.sampled_from(texts.PIECES), max_size=20).map("".join) | CUT, 0),
}
"""Texts, and the share of them that parses and is held at least."""


@pytest.mark.parametrize("number", [600, pytest.param(3000, marks=pytest.mark.long)])
@pytest.mark.parametrize("written", WRITTEN)
def test_text_means_what_it_did_plus_the_hold(judge, written, number):
    strategy, share = WRITTEN[written]

    fine, _ = assert_istiod_agrees(judge, examples(strategy, number))

    assert fine >= share * number


def test_the_cases_of_the_table_are_accepted_by_istiod(judge):
    values = [before for before, _ in table.MERGED.values() if before]

    assert assert_istiod_agrees(judge, values) == (len(values), len(values))
