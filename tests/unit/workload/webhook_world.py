"""The admission webhook, run by its command line, and reviews as an API server sends them."""

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import io
import json
import pathlib
import ssl
from collections.abc import AsyncIterator, Coroutine
from typing import Any
from unittest import mock

import aiohttp
import structlog
from prometheus_client import parser
from sidecar_lifecycle.shell import cli

from istio_integrator.admission import certificates
from testbed import loopback
from tests.unit.workload.fake_apiserver import running_task, until

SETTINGS = {"application": "a", "model": "m", "excluded-outbound-ports": [{"ports": [1]}]}
SETTINGS |= {"membership": "selected", "included-pods": "!app"}
"""Each pod gets ports, and joins the mesh by a label if it is in the model."""
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
NAME = "webhook"


def certificate() -> dict[str, bytes]:
    """Return a new certificate and its key, by their files' names."""
    made = certificates.renew_if_due(None, [NAME], datetime.datetime.now(datetime.UTC))
    return {name: base64.b64decode(encoded) for name, encoded in made.to_secret_data().items()}


CERTIFICATE = certificate()


def request(version: str = "admission.k8s.io/v1", **fields: Any) -> bytes:
    """Write the review of a new pod with other values of these fields."""
    asked = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "m",
        "object": POD,
        "oldObject": None,
        "dryRun": True,
        **fields,
    }
    review = {"apiVersion": version, "kind": "AdmissionReview", "request": asked}
    return json.dumps(review).encode()


@dataclasses.dataclass
class Webhook:
    """A webhook as an API server, a kubelet and Prometheus reach it."""

    session: aiohttp.ClientSession
    reviews: str
    health: str
    task: asyncio.Task[Any]
    trust: ssl.SSLContext
    answer: bytes = b""
    """The last answer and its content type."""
    content_type: str = ""

    async def status(
        self, body: bytes | AsyncIterator[bytes], kind: str = "model", **headers: str
    ) -> int:
        """Ask for a review, and return the status of the answer."""
        data = io.BytesIO(body) if isinstance(body, bytes) else body
        how: dict[str, Any] = {"headers": headers, "ssl": self.trust, "server_hostname": NAME}
        url = f"{self.reviews}/mutate/{kind}"
        async with self.session.post(url, data=data, **how) as answer:
            self.answer, self.content_type = await answer.read(), answer.content_type
            return answer.status

    async def respond(self, body: bytes, kind: str = "model") -> dict[str, Any]:
        """Return the response of a review that is answered."""
        assert await self.status(body, kind) == 200
        review = json.loads(self.answer)
        assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        return review["response"]

    async def get(self, path: str) -> int:
        """Return the status of an answer of the probes' port, or 0 if it is closed."""
        with contextlib.suppress(aiohttp.ClientConnectorError):
            async with self.session.get(f"{self.health}{path}") as answer:
                return answer.status
        return 0

    async def is_ready(self) -> bool:
        return await self.get("/readyz") == 200

    async def count(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples with these labels."""
        async with self.session.get(f"{self.health}/metrics") as answer:
            families = list(parser.text_string_to_metric_families(await answer.text()))
        full = f"sidecar_lifecycle_admission_{name}"
        samples = (each for family in families for each in family.samples if each.name == full)
        return sum(each.value for each in samples if labels.items() <= each.labels.items())


@contextlib.asynccontextmanager
async def serving(
    folder: pathlib.Path, *options: str, host: str = "127.0.0.1", seen_by: str = "127.0.0.1"
) -> AsyncIterator[Webhook]:
    """Run a webhook that listens at a host, and ask it by another name of the same."""
    for name, content in CERTIFICATE.items():
        (folder / name).write_bytes(content)
    (folder / "settings.json").write_text(json.dumps(SETTINGS))
    ports = loopback.free_ports(2)
    files = (f"--settings={folder / 'settings.json'}", f"--tls-dir={folder}")
    addresses = (f"--listen={host}:{ports[0]}", f"--health={host}:{ports[1]}")
    trust = ssl.create_default_context(cafile=str(folder / "tls.crt"))
    runs: list[Coroutine[Any, Any, None]] = []
    with mock.patch.object(asyncio, "run", runs.append):
        assert cli.main(["admission", *files, *addresses, *options]) == 0
    urls = f"https://{seen_by}:{ports[0]}", f"http://{seen_by}:{ports[1]}"
    try:
        async with running_task(runs[0]) as task, aiohttp.ClientSession() as session:
            subject = Webhook(session, *urls, task, trust)
            await until(subject.is_ready)
            yield subject
    finally:
        structlog.reset_defaults()
