"""What the charm's file says becomes metrics, and a file that says nonsense breaks none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import prometheus_client
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.shell import charm_facts as shown

from integrator_contract import charm_facts

FACTS = charm_facts.CharmFacts(
    problems=(
        charm_facts.Problem(part="ingress", severity="blocked"),
        charm_facts.Problem(part="ingress", severity="blocked"),
        charm_facts.Problem(part="mesh", severity="waiting"),
    ),
    gateway_ready=True,
    guard="closed",
    certificates=(charm_facts.Certificate(owner="gateway", not_before=5.0, not_after=9.5),),
    old_proxies=3,
)


def served(path: Path) -> dict[tuple[str, ...], float]:
    registry = prometheus_client.CollectorRegistry()
    registry.register(shown.Collector(path))
    return {
        (sample.name.removeprefix("istio_integrator_"), *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_everything_that_the_charm_knows_is_shown_with_the_time_of_its_look(tmp_path: Path):
    file = tmp_path / "facts"
    file.write_text(FACTS.document())
    os.utime(file, (100, 100))
    assert served(file) == {
        ("last_look_timestamp_seconds",): 100,
        ("problems", "ingress", "blocked"): 2,
        ("problems", "mesh", "waiting"): 1,
        ("gateway_ready",): 1,
        ("guard", "asks"): 0,
        ("guard", "closed"): 1,
        ("guard", "none"): 0,
        ("certificate_not_before_timestamp_seconds", "gateway"): 5,
        ("certificate_not_after_timestamp_seconds", "gateway"): 9.5,
        ("old_proxies",): 3,
    }


def test_what_only_the_leader_looks_at_is_not_shown_by_others(tmp_path: Path):
    file = tmp_path / "facts"
    file.write_text(charm_facts.CharmFacts().document())
    assert {name for name, *_ in served(file)} == {"last_look_timestamp_seconds"}


def test_before_the_first_hook_there_is_nothing_to_show_and_nothing_to_complain_of(tmp_path: Path):
    with structlog.testing.capture_logs() as logs:
        assert served(tmp_path / "facts") == {}
    assert logs == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"problems": [{"part": "anything", "severity": "blocked"}]}',
        b'{"old_proxies": "many"}',
        b'{"guard": "open"}',
        b" " * charm_facts.LONGEST + b"{}",
        b'{"old_proxies": ' + b"9" * 5000 + b"}",
    ],
)
def test_file_that_is_none_of_the_charm_s_is_logged_and_breaks_no_other_metric(
    tmp_path: Path, content: bytes
):
    file = tmp_path / "facts"
    file.write_bytes(content)
    with structlog.testing.capture_logs() as logs:
        assert served(file) == {}
    assert [line["event"] for line in logs] == ["the charm's facts can't be read"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from([*charm_facts.CharmFacts.__slots__, "part", "owner"]), inner
            )
        ),
    )
)
def test_no_content_ends_a_scrape(tmp_path_factory: pytest.TempPathFactory, value: object):
    file = tmp_path_factory.getbasetemp() / "any-facts"
    file.write_text(json.dumps(value))
    registry = prometheus_client.CollectorRegistry()
    registry.register(shown.Collector(file))
    prometheus_client.generate_latest(registry)
