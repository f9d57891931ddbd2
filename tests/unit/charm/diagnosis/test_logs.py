"""Errors in the logs of istiod and the gateway."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import logs

PLAIN = "2026-01-01T00:00:00.000000Z\t{}\t{}\t{}"
LEVELS = ["debug", "info", "warn", "warning", "error", "fatal", "critical"]


@given(st.lists(st.tuples(st.sampled_from(LEVELS), st.booleans()), max_size=20))
def test_errors_are_counted_in_both_formats(lines):
    log = [
        json.dumps({"level": level, "msg": "it went wrong"})
        if as_json
        else PLAIN.format(level, "ads", "it went wrong")
        for level, as_json in lines
    ]
    bad = sum(level in ("error", "fatal", "critical") for level, _ in lines)
    assert sum(logs.errors_in(log).values()) == bad
    (found,) = logs.judge("istiod", log, show="kubectl logs")
    assert (found.level.value == "✓") == (bad == 0)


def test_the_most_frequent_error_is_shown_with_its_last_numbers():
    log = [
        *(PLAIN.format("error", "ads", f"push {number} failed") for number in (1, 2, 3)),
        PLAIN.format("error", "x", "another"),
    ]
    (found,) = logs.judge("istiod", log, show="kubectl logs")
    assert found.seen == "istiod: 4 errors in 5 minutes: ads push 3 failed (3 times)"


@pytest.mark.parametrize(
    ("level", "scope", "text"),
    [
        (
            "warning",
            "envoy config",
            "delta config for type.googleapis.com/x.Listener rejected: no",
        ),
        ("warning", "envoy config", "gRPC config for type.googleapis.com/x.Listener rejected: no"),
        ("warn", "delta", "ADS:LDS: ACK ERROR gateway-1 Internal:Error adding/updating listener"),
    ],
)
def test_configuration_that_a_proxy_rejects_counts_though_it_is_a_warning(level, scope, text):
    assert list(logs.errors_in([PLAIN.format(level, scope, text)])) == [f"{scope} {text}"]


def test_rejected_configuration_is_shown_before_what_is_said_more_often():
    rejected = "gRPC config for type.googleapis.com/x.Listener rejected: no"
    lines = [PLAIN.format("error", "envoy lua", "script load error")] * 3
    lines += [PLAIN.format("warning", "envoy config", rejected)]
    (found,) = logs.judge("the gateway", lines, show="kubectl logs")
    assert "4 errors" in found.seen
    assert rejected in found.seen


def test_reason_is_shown_without_its_place_in_envoys_source():
    path = f"external/envoy/source/{'extensions/config_subscription/' * 6}grpc.cc:138"
    rejected = "gRPC config for type.googleapis.com/x.Listener rejected: no"
    text = f"{path}\t{rejected}\tthread=21"
    lines = [PLAIN.format("error", "envoy lua", "script load error")] * 3
    lines += [PLAIN.format("warning", "envoy config", text)]
    (found,) = logs.judge("the gateway", lines, show="kubectl logs")
    assert found.seen == f"the gateway: 4 errors in 5 minutes: envoy config {rejected}"


def test_long_line_is_cut():
    lines = [PLAIN.format("error", "ads", "never " * 100)]
    (found,) = logs.judge("istiod", lines, show="kubectl logs")
    assert found.seen.endswith("…")
    assert len(found.seen) < 220


@pytest.mark.parametrize(
    "text",
    [
        "error handling istio-validator, retrying (retry count: 1): connection refused",
        'failed: Operation cannot be fulfilled on validatingwebhookconfigurations.k8s.io "x": y',
    ],
)
def test_try_of_a_controller_that_is_repeated_is_no_error(text):
    assert logs.errors_in([PLAIN.format("error", "controllers", text)]) == {}


def test_lines_of_any_other_form_are_no_errors():
    assert (
        logs.errors_in(["", "panic", "{not JSON", '["a"]', "[2026-01-01] GET / 500 error"]) == {}
    )
