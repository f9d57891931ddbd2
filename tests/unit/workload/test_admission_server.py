"""The webhook's server: what it answers over TLS, counts and logs; how it follows its files."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
import logging
import pathlib
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import prometheus_client
import pytest
import structlog
from sidecar_lifecycle.shell import logs
from sidecar_lifecycle.shell.admission import server

from istio_integrator.admission import certificates
from testbed import loopback
from tests.unit.workload.fake_apiserver import until
from tests.unit.workload.test_admission_review import POD, request

MINIMAL = {"application": "a", "model": "m"}


def webhook(folder: pathlib.Path, **options: Any) -> server.WebhookServer:
    """Write what a webhook reads, and return it."""
    wanted = certificates.decide(None, ["webhook"], datetime.datetime.now(datetime.UTC))
    for name, encoded in wanted.data().items():
        (folder / name).write_bytes(base64.b64decode(encoded))
    (folder / "settings.json").write_text(json.dumps(MINIMAL))
    return server.WebhookServer(
        settings_file=folder / "settings.json",
        tls_dir=folder,
        **{
            "listen": ("127.0.0.1", loopback.free_port()),
            "health": ("127.0.0.1", 0),
            **options,
        },
    )


class Served:
    """A webhook that serves, and who asks it."""

    def __init__(
        self,
        registry: prometheus_client.CollectorRegistry,
        session: aiohttp.ClientSession,
        trust: ssl.SSLContext,
    ) -> None:
        self.registry = registry
        self._session = session
        self._trust = trust

    async def status(self, body: Any, kind: str = "model", **headers: str) -> int:
        asked = self._session.post(
            f"/mutate/{kind}",
            data=body,
            headers=headers,
            ssl=self._trust,
            server_hostname="webhook",
        )
        async with asked as answer:
            self.answer = await answer.read()
            self.content_type = answer.content_type
            return answer.status

    def count(self, name: str, **labels: str) -> float:
        full = f"sidecar_lifecycle_admission_{name}_total"
        return self.registry.get_sample_value(full, labels) or 0


@contextlib.asynccontextmanager
async def serving(folder: pathlib.Path, **limits: Any) -> AsyncIterator[Served]:
    subject = webhook(folder, **limits)
    trust = ssl.create_default_context(cafile=str(folder / "tls.crt"))
    host, port = subject.listen
    async with (
        aiohttp.ClientSession(f"https://{host}:{port}") as session,
        asyncio.timeout(30),
        subject.serving(),
    ):
        yield Served(subject.registry, session, trust)


async def test_review_is_answered_and_counted_and_not_spoken_about(tmp_path):
    with structlog.testing.capture_logs() as said:
        async with serving(tmp_path) as served:
            assert await served.status(request()) == 200
            assert await served.status(request(), kind="profiles") == 200

    assert served.content_type == "application/json"
    response = json.loads(served.answer)["response"]
    assert (response["uid"], response["allowed"]) == ("u-1", True)
    assert served.count("reviews", namespaces="model", outcome="patched") == 1
    assert served.count("reviews", namespaces="profiles", outcome="patched") == 1
    assert served.count("changes", change="hold") == 2
    seconds = "sidecar_lifecycle_admission_seconds_sum"
    assert 0 < served.registry.get_sample_value(seconds, {"outcome": "patched"}) < 30
    assert not [each for each in said if each["log_level"] == "warning"]


async def test_change_that_is_not_made_is_counted_with_its_reason(tmp_path):
    metadata = {"name": "static", "annotations": {"kubernetes.io/config.mirror": "0123"}}
    async with serving(tmp_path) as served:
        assert await served.status(request(object={**POD, "metadata": metadata})) == 200

    assert served.count("skips", change="all", reason="MirrorPod") == 1


async def test_what_is_no_review_is_refused_and_told_of_once_in_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "WARNING_SECONDS", 3600.0)
    with structlog.testing.capture_logs() as said:
        async with serving(tmp_path) as served:
            assert [await served.status("{") for _ in range(3)] == [400, 400, 400]
            assert [each["event"] for each in said].count("review refused") == 1
            monkeypatch.setattr(server, "WARNING_SECONDS", 0.0)
            await served.status("{")

    assert served.content_type == "text/plain"
    assert [each["event"] for each in said].count("review refused") == 2
    assert served.count("reviews", namespaces="model", outcome="malformed") == 4


async def slowly() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.sleep(20)


async def test_body_that_is_too_long_or_has_no_end_is_not_read(tmp_path):
    async with serving(tmp_path, largest_body=100) as served:
        assert await served.status("x" * 101) == 413
        assert await served.status(slowly()) == 411
        assert await served.status("x", kind="other") == 404
        assert await served.status("x" * 100) == 400

    assert served.count("reviews", namespaces="model", outcome="too-large") == 1


async def test_body_that_does_not_arrive_is_not_waited_for(tmp_path):
    async with serving(tmp_path, review_seconds=0.2) as served:
        assert await served.status(slowly(), **{"Content-Length": "90"}) == 408

    assert served.count("reviews", namespaces="model", outcome="too-slow") == 1


async def test_each_change_of_a_file_is_counted_and_what_stays_wrong_is_told_of_once(tmp_path):
    with structlog.testing.capture_logs() as said:
        async with serving(tmp_path, reload_seconds=0.01) as served:

            def reloads(file, result):
                return served.count("reloads", file=file, result=result)

            (tmp_path / "settings.json").write_text("{")
            await until(lambda: reloads("settings", "failed") >= 3)
            assert reloads("settings", "ok") == 0
            (tmp_path / "settings.json").write_text(json.dumps({**MINIMAL, "revision": "new"}))
            await until(lambda: reloads("settings", "ok") >= 1)
            (tmp_path / "tls.key").write_text("no key")
            await until(lambda: reloads("certificate", "failed") >= 2)
            assert (reloads("settings", "ok"), reloads("certificate", "ok")) == (1, 0)

    warned = [each["file"] for each in said if each["log_level"] == "warning"]
    assert warned == ["settings", "certificate"]


async def test_certificate_without_its_key_is_shown_to_nobody(tmp_path):
    other = certificates.decide(None, ["webhook"], datetime.datetime.now(datetime.UTC)).data()
    async with serving(tmp_path, reload_seconds=0.01) as served:
        (tmp_path / "tls.crt").write_bytes(base64.b64decode(other["tls.crt"]))
        await until(lambda: served.count("reloads", file="certificate", result="failed") >= 2)
        assert await served.status(request()) == 200


async def test_server_that_is_told_to_end_is_not_ready_and_answers_for_a_while(
    tmp_path, monkeypatch
):
    told: dict[signal.Signals, Callable[[], None]] = {}
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", told.__setitem__)
    subject = webhook(tmp_path, drain_seconds=0.5)
    running = asyncio.create_task(subject.run())
    async with asyncio.timeout(30):
        await until(lambda: subject._ready)
        assert told.keys() == {signal.SIGTERM, signal.SIGINT}
        told[signal.SIGTERM]()
        await until(lambda: not subject._ready)
        assert not running.done()
        await running


async def test_level_of_the_servers_log_changes_while_they_serve(tmp_path, capsys):
    level = tmp_path / "log-level"
    level.write_text("error")
    subject = webhook(tmp_path, log_level_file=level)
    logs.configure("info")
    said = ""
    async with subject.serving(), asyncio.timeout(30):
        await until(lambda: not structlog.get_logger().is_enabled_for(logging.WARNING))
        level.write_text("debug")
        while '"level": "debug"' not in said:
            structlog.get_logger().debug("heard")
            said += capsys.readouterr().err
            await asyncio.sleep(0.05)

    assert '"message": "heard"' in said


async def status_of(url: str, **how: Any) -> int:
    async with aiohttp.ClientSession() as session, session.get(url, **how) as answer:
        return answer.status


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the kernel has no IPv6")
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_webhook_is_reached_by_either_family_of_addresses(tmp_path, host):
    port, health = loopback.free_port(), loopback.free_port()
    subject = webhook(tmp_path, listen=("", port), health=("", health))
    trust = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
    async with subject.serving():
        asked = {"ssl": trust, "server_hostname": "webhook"}
        assert await status_of(f"https://{host}:{port}/mutate/model", **asked) == 405
        assert await status_of(f"http://{host}:{health}/readyz") == 200


async def test_webhook_is_reached_by_ipv4_where_the_kernel_has_no_ipv6(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    health = loopback.free_port()
    subject = webhook(tmp_path, listen=("", loopback.free_port()), health=("", health))
    async with subject.serving():
        assert await status_of(f"http://127.0.0.1:{health}/livez") == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            await status_of(f"http://[::1]:{health}/livez")
