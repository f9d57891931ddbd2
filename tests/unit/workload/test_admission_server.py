"""The webhook's server: what it answers over TLS, counts and logs; how it follows its files."""

import asyncio
import json
import pathlib
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest
import yarl

from tests.unit.workload import webhook_world
from tests.unit.workload.fake_apiserver import running_task
from tests.unit.workload.webhook_world import SETTINGS, request, serving

LARGEST = 3 << 20
"""Bytes of a body, as many as an API server takes."""


def logged(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


async def test_review_is_answered_and_counted_and_not_spoken_about(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    async with serving(tmp_path) as webhook:
        assert (await webhook.respond(request()))["allowed"] is True
        assert await webhook.status(request(), kind="profiles") == 200
        assert webhook.content_type == "application/json"
        for kind in ("model", "profiles"):
            assert await webhook.count("reviews_total", namespaces=kind, outcome="patched") == 1
        assert await webhook.count("changes_total", change="hold") == 2
        assert await webhook.count("changes_total", change="inject") == 1
        assert 0 < await webhook.count("seconds_sum", outcome="patched") < 30

    assert not [each for each in logged(capsys) if each["level"] == "warning"]


async def test_what_is_no_review_is_refused_and_told_of_once_in_a_while(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(time, "perf_counter", asyncio.get_running_loop().time)
    async with serving(tmp_path) as webhook:
        for _ in range(2):
            assert [await webhook.status(b"{") for _ in range(3)] == [400, 400, 400]
            (told,) = (each for each in logged(capsys) if each["message"] == "review refused")
            assert (told["namespaces"], told["error"]) == ("model", webhook.answer.decode())
            await asyncio.sleep(2)
        assert webhook.content_type == "text/plain"
        assert await webhook.count("reviews_total", namespaces="model", outcome="malformed") == 6


async def slowly() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.sleep(20)


async def test_body_that_is_too_long_or_has_no_end_is_not_read(tmp_path: pathlib.Path):
    async with serving(tmp_path) as webhook:
        assert await webhook.status(slowly(), **{"Content-Length": str(LARGEST + 1)}) == 413
        assert await webhook.status(slowly()) == 411
        assert await webhook.status(b"x", kind="other") == 404
        assert await webhook.status(bytes(LARGEST)) == 400
        assert await webhook.count("reviews_total", namespaces="model", outcome="too-large") == 1


async def test_body_that_does_not_arrive_is_not_waited_for(tmp_path: pathlib.Path):
    loop = asyncio.get_running_loop()
    async with serving(tmp_path) as webhook:
        began = loop.time()
        assert await webhook.status(slowly(), **{"Content-Length": "90"}) == 408
        assert loop.time() - began < 3, "the API server has gone by then"
        large = {"Content-Length": str(LARGEST)}
        async with running_task(webhook.status(slowly(), **large)) as first:
            await asyncio.sleep(1)
            assert await webhook.count("reviews_total", outcome="too-many") == 0
            assert await webhook.status(bytes(LARGEST // 3 + 1), "profiles") == 503
            assert await webhook.status(bytes(LARGEST // 3)) == 400
            assert await webhook.status(bytes(64 * 1024)) == 400
            assert await first == 408
        assert await webhook.status(bytes(LARGEST)) == 400
        counted = {"namespaces": "profiles", "outcome": "too-many"}
        assert await webhook.count("reviews_total", **counted) == 1
        assert await webhook.count("reviews_total", namespaces="model", outcome="too-slow") == 2


async def test_each_change_of_a_file_is_counted_and_what_stays_wrong_is_told_of_once(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    async with serving(tmp_path) as webhook:

        async def reloads(file: str, result: str) -> float:
            return await webhook.count("reloads_total", file=file, result=result)

        async def applied() -> str:
            return (await webhook.respond(request()))["auditAnnotations"]["applied"]

        # Alerts compare with a sample of before.
        async with webhook.session.get(f"{webhook.health}/metrics") as answer:
            text = await answer.text()
        assert text.count('reloads_total{file="') == 2
        assert "process_resident_memory_bytes" in text
        (tmp_path / "settings.json").write_text("{")
        await asyncio.sleep(5)
        assert await reloads("settings", "failed") >= 3
        assert await reloads("settings", "ok") == 0
        assert await applied() == "inject,ports,hold"
        changed = {**SETTINGS, "hold-application": False}
        (tmp_path / "settings.json").write_text(json.dumps(changed))
        await asyncio.sleep(5)
        assert await applied() == "inject,ports"
        # A renewed certificate is served with its key only. No connection is kept for 40 s.
        renewed = webhook_world.certificate()
        (tmp_path / "tls.crt").write_bytes(renewed["tls.crt"])
        await asyncio.sleep(40)
        assert await reloads("certificate", "failed") >= 2
        assert await reloads("settings", "ok") == 1
        assert await reloads("certificate", "ok") == 0
        assert await webhook.status(request()) == 200
        (tmp_path / "tls.key").write_bytes(renewed["tls.key"])
        await asyncio.sleep(5)
        webhook.trust = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
        assert await webhook.status(request()) == 200
        assert await reloads("certificate", "ok") == 1

    warned = [each["file"] for each in logged(capsys) if each["level"] == "warning"]
    assert warned == ["settings", "certificate"]


async def test_server_that_is_told_to_end_is_not_ready_and_answers_for_a_while(
    tmp_path: pathlib.Path,
):
    async with serving(tmp_path) as webhook:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(4)
        assert await webhook.get("/readyz") == 503
        assert await webhook.get("/livez") == 200
        assert await webhook.status(request()) == 200
        await asyncio.sleep(10)
        assert webhook.task.done()
        assert await webhook.get("/readyz") == 0


async def test_flood_of_connections_closes_the_oldest_idle_ones_of_its_address(
    tmp_path: pathlib.Path,
):
    async with serving(tmp_path) as webhook:
        url = yarl.URL(webhook.health)

        async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection(url.host, url.port, local_addr=(address, 0))

        async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            return await reader.readuntil(b"ok\n")

        older = await connect("127.0.0.1")
        flood = [await connect("127.0.0.2") for _ in range(200)]
        await ask(*flood[0])
        flood += [await connect("127.0.0.2") for _ in range(100)]
        newer = [await connect("127.0.0.1") for _ in range(9)]
        for each in (older, *newer, flood[0], flood[-1]):
            assert (await ask(*each)).startswith(b"HTTP/1.1 200 OK")
        assert await flood[1][0].read() == b""
        for _, writer in (older, *newer, *flood):
            writer.close()


async def test_level_of_the_servers_log_changes_while_they_serve(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    level = tmp_path / "log-level"
    level.write_text("error")
    async with serving(tmp_path, f"--log-level-file={level}") as webhook:
        for wanted, told in (("error", []), ("verbose", []), ("debug", ["debug"])):
            level.write_text(f"{wanted}\n")
            await asyncio.sleep(3)
            capsys.readouterr()
            await webhook.status(request())
            assert [each["level"] for each in logged(capsys)] == told


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the kernel has no IPv6")
@pytest.mark.parametrize(
    ("host", "seen_by"), [("", "127.0.0.1"), ("", "[::1]"), ("[::1]", "[::1]")]
)
async def test_webhook_is_reached_by_either_family_of_addresses(
    tmp_path: pathlib.Path, host: str, seen_by: str
):
    async with serving(tmp_path, host=host, seen_by=seen_by) as webhook:
        assert await webhook.status(request()) == 200
        assert await webhook.get("/readyz") == 200


async def test_webhook_is_reached_by_ipv4_where_the_kernel_has_no_ipv6(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    async with serving(tmp_path, host="") as webhook:
        assert await webhook.get("/livez") == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            await webhook.session.get(webhook.health.replace("127.0.0.1", "[::1]"))
