"""The service on the small API server: its settings file, its two ports, and its Pebble."""

import asyncio
import contextlib
import dataclasses
import datetime
import os
import pathlib
import tempfile
import time
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import aiohttp
from aiohttp import web
from prometheus_client import parser

from integrator_contract import charm_facts, names, schema, service
from testbed import loopback
from tests import workload_access
from tests.unit.workload.fake_apiserver import FakeApiserver, until

MODEL = "kf"
APPLICATION = "mesh-2"
SETTINGS = service.Options(
    model=MODEL, application=APPLICATION, unit=f"{APPLICATION}/0", leader=True, token="a-token"
)
"""Of the first unit, which is Juju's leader."""
EPOCH = datetime.datetime(2026, 1, 1, 1, tzinfo=datetime.UTC).timestamp()
"""An hour after the pods of the builder came up."""


def now() -> float:
    """Return the time by which the service goes: that of the loop, which may jump."""
    return EPOCH + asyncio.get_running_loop().time()


@dataclasses.dataclass
class Service:
    """The service of one unit, as its charm and Prometheus reach it."""

    settings: service.Options
    file: pathlib.Path
    listener: str
    """Its address."""
    asked: aiohttp.ClientSession
    """Requests of the charm, with the token that it wrote last."""
    scraped: aiohttp.ClientSession
    noticed: list[str] = dataclasses.field(default_factory=list)
    """The keys of the notices that Pebble got."""
    results: service.Results | None = None
    """The results of the last hook, if there was one."""
    pebble_status: int = 200
    """The status of Pebble's answers."""

    def change(self, **values: Any) -> None:
        """Write other settings, as a hook does, and other results at its end."""
        found = {key: values.pop(key) for key in ("facts", "expected") if key in values}
        self.settings = dataclasses.replace(self.settings, **values)
        self.file.write_text(self.settings.encode())
        self.asked.headers["Authorization"] = f"Bearer {self.settings.token}"
        if any(found.values()) or self.results:
            first = self.results or service.Results(facts=charm_facts.CharmFacts(looked=0.0))
            self.results = dataclasses.replace(first, **found)
            service.name_results_file(self.file).write_text(self.results.encode())

    async def get(self, path: str) -> Any:
        """Return what the charm is told."""
        async with self.asked.get(path) as answer:
            return await _told(answer)

    async def post(self, path: str) -> Any:
        """Send a POST to the service."""
        async with self.asked.post(path) as answer:
            return await _told(answer)

    async def is_ready(self) -> bool:
        async with self.scraped.get("/readyz") as answer:
            return answer.status == 200

    async def metrics(self) -> dict[tuple[str, ...], float]:
        """Return the samples by name and values of labels."""
        async with self.scraped.get("/metrics") as answer:
            assert answer.content_type == "text/plain", "Prometheus rejects other types"
            text = await answer.text()
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def counted(self, name: str, *labels: str) -> float:
        """Return the sum of the samples of a name, with these values of labels."""
        wanted = (f"sidecar_lifecycle_{name}", *labels)
        samples = (await self.metrics()).items()
        return sum(value for key, value in samples if key[: len(wanted)] == wanted)

    async def shows(self, count: float, name: str, *labels: str) -> bool:
        """Tell whether the samples of a name add up to a count."""
        return await self.counted(name, *labels) == count

    def told(self) -> int:
        """Return how often the charm was told that the mesh changed."""
        return self.noticed.count(names.MESH_NOTICE)

    async def take_notice(self, request: web.Request) -> web.Response:
        """Stand for Pebble, as far as it takes notices (internals/daemon/api_notices.go)."""
        notice = await request.json()
        self.noticed.append(notice["key"])
        assert notice == {"action": "add", "type": "custom", "key": notice["key"]}
        return web.json_response({"result": {"id": "1"}}, status=self.pebble_status)


def client(port: int) -> aiohttp.ClientSession:
    """Return what sends requests to a port of the service."""
    return aiohttp.ClientSession(f"http://127.0.0.1:{port}")


async def _told(answer: aiohttp.ClientResponse) -> Any:
    assert answer.status == 200, await answer.text()
    found = await answer.json()
    assert found["contract"] == schema.SCHEMA
    return found["answer"]


@contextlib.asynccontextmanager
async def running(
    cluster: FakeApiserver, settings: service.Options = SETTINGS, **values: Any
) -> AsyncIterator[Service]:
    """Run the service against the small API server, by the time of the loop."""
    connection = workload_access.at(cluster.address, cluster.token)
    with mock.patch.object(time, "time", now):
        async with serving(connection, settings, **values) as subject:
            yield subject


@contextlib.asynccontextmanager
async def serving(
    connection: Any, settings: service.Options, **values: Any
) -> AsyncIterator[Service]:
    """Run the service as Pebble does, by its command line, until it has ended in order."""
    asked, scraped = loopback.free_ports(2)
    async with contextlib.AsyncExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        subject = Service(
            settings,
            folder / "settings.json",
            f"http://127.0.0.1:{asked}",
            asked=await stack.enter_async_context(client(asked)),
            scraped=await stack.enter_async_context(client(scraped)),
        )
        subject.change(**values)
        pebble = web.Application()
        pebble.router.add_post("/v1/notices", subject.take_notice)
        runner = web.AppRunner(pebble)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.UnixSite(runner, folder / "pebble").start()
        variables = {"PEBBLE_SOCKET": str(folder / "pebble")}
        stack.enter_context(mock.patch.dict(os.environ, variables))
        command = (f"--settings={subject.file}", f"--contract={schema.SCHEMA}")
        ports = (f"--port={asked}", f"--listen=127.0.0.1:{scraped}")
        await stack.enter_async_context(workload_access.service(connection, *command, *ports))

        async def is_listening() -> bool:
            with contextlib.suppress(aiohttp.ClientConnectorError):
                async with subject.asked.head("/"):
                    return True
            return False

        await until(is_listening)
        yield subject
