"""A stop is told to a collector as one trace, and a collector's trouble stays its own."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import ssl
from pathlib import Path

import prometheus_client
import pytest
from sidecar_lifecycle.shell import cli, traces
from sidecar_lifecycle.shell.commands import run

from testbed import certificates
from tests import otlp
from tests.unit.workload import pods
from tests.unit.workload.fake_apiserver import FakeApiserver, running_task, until

MILESTONES = ["decided", "placed", "connected", "answered", "gone"]


def program_of(cluster: FakeApiserver, endpoint: str) -> run.Program:
    options = ["--model=kubeflow", "--application=app", "--unit=app/0", "--listen=127.0.0.1:0"]
    arguments = cli.parser("run").parse_args(["run", *options, f"--traces-endpoint={endpoint}"])
    registry = prometheus_client.CollectorRegistry()
    return run.Program(cluster.client, run.settings_of(arguments), registry)


async def stopped(cluster: FakeApiserver, endpoint: str) -> None:
    """Have the proxy of one finished Job stopped, and the program end."""
    cluster.put("pods", pods.pod_json())
    program = program_of(cluster, endpoint)
    async with running_task(program.run()):
        await until(
            lambda: cluster.get("pods", "kubeflow", "job-x")["status"]["phase"] != "Running", 30
        )
        # It is tracked until the watch has shown its end.
        await until(lambda: not len(program.shutdown.view), 30)


async def test_one_job_s_stop_is_one_trace_with_its_milestones_in_order(cluster: FakeApiserver):
    with otlp.collecting() as collector:
        await stopped(cluster, collector.url)
    (whole,) = [span for span in collector.spans if not span.parent_span_id]
    steps = [span for span in collector.spans if span.parent_span_id]
    assert whole.name == "stop proxy"
    assert [span.name for span in steps] == MILESTONES
    assert {span.trace_id for span in steps} == {whole.trace_id}
    assert {span.parent_span_id for span in steps} == {whole.span_id}
    assert steps[0].start_time_unix_nano == whole.start_time_unix_nano
    for before, after in itertools.pairwise(steps):
        assert before.end_time_unix_nano == after.start_time_unix_nano
        assert after.start_time_unix_nano <= after.end_time_unix_nano
    assert steps[-1].end_time_unix_nano == whole.end_time_unix_nano
    about = {one.key: one.value.string_value for one in whole.attributes}
    assert about["k8s.pod.name"] == "job-x"
    assert about["k8s.namespace.name"] == "kubeflow"
    assert about["reason"] == "PayloadFinished"
    assert collector.resources[0]["juju_unit"] == "app/0"


async def test_try_that_failed_is_in_the_trace_with_its_result(cluster: FakeApiserver):
    cluster.failures = [("/portforward", 500, {})]
    with otlp.collecting() as collector:
        await stopped(cluster, collector.url)
    results = [
        (span.name, one.value.string_value)
        for span in collector.spans
        for one in span.attributes
        if one.key == "result"
    ]
    assert results == [("failed", "unavailable")]


@pytest.mark.parametrize("trouble", ["away", "refuses", "hangs"])
async def test_collector_in_trouble_keeps_no_proxy_from_being_stopped_and_no_unit_from_ending(
    cluster: FakeApiserver, trouble: str
):
    with otlp.collecting() as collector:
        collector.status = 500
        if trouble == "hangs":
            collector.hold.clear()
        url = "http://127.0.0.1:9/v1/traces" if trouble == "away" else collector.url
        await stopped(cluster, url)
        assert collector.spans == []
        sending = traces.Traces(url, {})
        sending.end("anything", sending.begin({}))
        # One that hangs does so until the end of this block.
        await sending.close(0.1)


async def test_of_very_many_at_once_some_are_sent():
    clock = iter(range(10**18, 10**18 + 10**6))
    with otlp.collecting() as collector:
        sending = traces.Traces(collector.url, {}, clock=lambda: next(clock))
        for number in range(500):
            trace = sending.begin({"number": number})
            sending.reached(trace, "gone")
            sending.end("stop proxy", trace)
        await sending.close(10)
    assert len(collector.spans) == 2 * traces.BURST


async def test_what_is_tried_for_ever_is_one_trace_of_bounded_size():
    with otlp.collecting() as collector:
        sending = traces.Traces(collector.url, {})
        trace = sending.begin({"k8s.pod.name": "x" * 10_000})
        for _ in range(1000):
            sending.reached(trace, "failed", result="timeout")
        sending.reached(trace, "gone")
        sending.end("stop proxy", trace, tries=1000)
        await sending.close(10)
    *steps, whole = sorted(collector.spans, key=lambda span: not span.parent_span_id)
    assert len(steps) == traces.MOST_MILESTONES
    assert "gone" in {span.name for span in steps}
    (name,) = [one.value.string_value for one in whole.attributes if one.key == "k8s.pod.name"]
    assert len(name) == traces.LONGEST


@pytest.mark.parametrize("year", [1, 1970, 2999])
async def test_clock_of_a_node_that_is_far_off_spoils_no_batch(year: int):
    since = datetime.datetime(year, 1, 1, tzinfo=datetime.UTC)
    with otlp.collecting() as collector:
        sending = traces.Traces(collector.url, {})
        sending.end("stop proxy", sending.begin({}, since))
        await sending.close(10)
    (span,) = collector.spans
    assert 0 <= span.end_time_unix_nano - span.start_time_unix_nano <= traces.EARLIEST


async def test_what_ends_within_seconds_is_sent_in_one_request_and_later_ones_in_another(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(traces, "BATCH_SECONDS", 0.3)
    with otlp.collecting() as collector:
        sending = traces.Traces(collector.url, {})
        for requests in (1, 2):
            for _ in range(3):
                sending.end("stop proxy", sending.begin({}))
            await until(lambda due=requests: len(collector.spans) == 3 * due, 10)
            assert len(collector.resources) == requests
        await sending.close(10)
    assert len(collector.resources) == 2


@pytest.mark.parametrize(
    ("of_system", "of_charm", "is_known"),
    [
        pytest.param("", "", False, id="nobody"),
        pytest.param("ours", "", True, id="system"),
        pytest.param("", "ours", True, id="charm"),
        pytest.param("ours", "other", True, id="system-beside-another"),
        pytest.param("other", "ours", True, id="charm-beside-another"),
        pytest.param("", "other", False, id="another"),
    ],
)
async def test_https_needs_an_authority_that_the_system_or_the_charm_knows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_system: str,
    of_charm: str,
    is_known: bool,
):
    files = {
        name: str(certificates.Authority(tmp_path / name).pair.certificate)
        for name in ("ours", "other")
    }
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if of_system:
        monkeypatch.setenv("SSL_CERT_FILE", files[of_system])
    authorities = files[of_charm] if of_charm else ""
    with otlp.collecting(server_of(tmp_path / "ours")) as collector:
        sending = traces.Traces(collector.url, {}, authorities=authorities)
        sending.end("stop proxy", sending.begin({}))
        await sending.close(10)
    assert len(collector.spans) == is_known


def server_of(folder: Path) -> ssl.SSLContext:
    """Return what a server has whose certificate an authority signed."""
    pair = certificates.Authority(folder).server("collector", ["localhost"], ["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)
    return tls


async def test_authority_that_comes_later_is_known_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(traces, "BATCH_SECONDS", 0.01)
    file, authority = tmp_path / "authorities", tmp_path / "ours"

    def are_sent() -> bool:
        return "traces" not in {task.get_name() for task in asyncio.all_tasks()}

    with otlp.collecting(server_of(authority)) as collector:
        sending = traces.Traces(collector.url, {}, authorities=str(file))
        for content in (None, "", "-----BEGIN nonsense", (authority / "ca.crt").read_text()):
            assert collector.spans == []
            if content is not None:
                file.write_text(content)
            sending.end("stop proxy", sending.begin({}))
            await until(are_sent, 10)
        await sending.close(10)
    assert len(collector.spans) == 1
