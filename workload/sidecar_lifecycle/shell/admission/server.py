"""The webhook's HTTPS server, and its HTTP server for probes and metrics."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import functools
import pathlib
import signal
import ssl
import time
from collections.abc import AsyncGenerator

import prometheus_client
import structlog
from aiohttp import web

from integrator_contract import namespaces
from sidecar_lifecycle.shell import InputError, logs, serving, settings

from . import review

log = structlog.get_logger(__name__)

_PREFIX = "sidecar_lifecycle_admission"

LARGE = 64 * 1024
"""In bytes; Kubeflow's pods have 5 to 30 KiB. The limit of connections bounds smaller bodies."""
MOST_BYTES = 4 * 1024 * 1024
"""Sum of large bodies with pending answers; each needs three times as much memory in addition."""
WARNING_SECONDS = 1.0
"""Between two log lines about malformed reviews; the metrics count each one."""


class Metrics:
    """The metrics of the webhook."""

    def __init__(self, registry: prometheus_client.CollectorRegistry) -> None:
        counter = functools.partial(
            prometheus_client.Counter, namespace=_PREFIX, registry=registry
        )
        self.reviews = counter(
            "reviews",
            "AdmissionReviews by kind of namespace and outcome.",
            ["namespaces", "outcome"],
        )
        self.changes = counter("changes", "Changes made to pods.", ["change"])
        self.skips = counter("skips", "Changes not made to pods, by reason.", ["change", "reason"])
        self.seconds = prometheus_client.Histogram(
            f"{_PREFIX}_seconds",
            "Time from a review's last byte to its answer, by outcome.",
            ["outcome"],
            registry=registry,
            buckets=(0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5),
        )
        self.reloads = counter(
            "reloads",
            "Changed files that were read again, and tries that failed, one a second.",
            ["file", "result"],
        )
        for file in ("settings", "certificate"):
            self.reloads.labels(file, "failed")

    def observe(self, kind: str, answer: review.ReviewAnswer, seconds: float) -> None:
        """Count an answer with its changes, and record its time."""
        self.reviews.labels(kind, answer.outcome).inc()
        self.seconds.labels(answer.outcome).observe(seconds)
        if answer.mutation:
            for change in answer.mutation.applied:
                self.changes.labels(change).inc()
            for skip in answer.mutation.skipped:
                self.skips.labels(skip.change, skip.reason).inc()


class ServingCertificate:
    """The serving certificate, which is reloaded for later handshakes when its files change."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._files = directory / "tls.crt", directory / "tls.key"
        self._loaded: list[bytes] = []
        self.context = _make_context()
        self.refresh()

    def refresh(self) -> bool:
        """Load a changed certificate; return whether it changed.

        Raises:
            OSError: A file can't be read, or the key does not match the certificate. The server
                keeps the old ones.
        """
        found = [file.read_bytes() for file in self._files]
        if found == self._loaded:
            return False
        # The first context is a test: a key that does not match must not reach the server's.
        for context in (_make_context(), self.context):
            context.load_cert_chain(*self._files)
        self._loaded = found
        return True


def _make_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


@dataclasses.dataclass(kw_only=True)
class WebhookServer:
    """Answers reviews with the settings that are currently in the file."""

    settings_file: pathlib.Path
    tls_dir: pathlib.Path
    log_level_file: pathlib.Path | None = None
    """Contains the log level; `info` without a file."""
    listen: tuple[str, int] = ("", 8443)
    """Host and port; an empty host means all addresses of the pod."""
    health: tuple[str, int] = ("", 8080)
    largest_body: int = 3 * 1024 * 1024
    """In bytes, the same as the API server's limit of a request. An object in etcd has at most
    half of it, and a review of a creation contains no old object."""
    review_seconds: float = 2.5
    """From the headers of a request to the end of its answer; the API server times out at 3 s."""
    reload_seconds: float = 1.0
    """Between two checks of the files."""
    drain_seconds: float = 5.0
    """From unready to closed, until API servers send their requests to other pods."""
    registry: prometheus_client.CollectorRegistry = dataclasses.field(
        default_factory=prometheus_client.CollectorRegistry
    )

    def __post_init__(self) -> None:
        """Read the files, or raise InputError or OSError."""
        self._settings = settings.read_admission(self.settings_file)
        self._certificate = ServingCertificate(self.tls_dir)
        self._metrics = Metrics(self.registry)
        self._held = 0
        self._warned = float("-inf")
        self._ready = False
        self._level = "info"

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with self.serving():
            await stop.wait()
            self._ready = False
            log.info("webhook stops", drain_seconds=self.drain_seconds)
            await asyncio.sleep(self.drain_seconds)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Serve and reload changed files while the block runs."""
        # `_review` limits the size instead, so that the metrics count bodies that are too large.
        reviews = web.Application(client_max_size=0)
        for kind in namespaces.KINDS:
            reviews.router.add_post(f"/mutate/{kind}", functools.partial(self._review, kind))
        async with contextlib.AsyncExitStack() as stack:
            tls = self._certificate.context
            await stack.enter_async_context(
                serving.serve(reviews, self.listen, tls=tls, shutdown_seconds=60)
            )
            probes = serving.make_health_application(
                lambda: {"serving": self._ready}, self.registry
            )
            await stack.enter_async_context(serving.serve(probes, self.health))
            files = {
                "settings": self._refresh_settings,
                "certificate": self._certificate.refresh,
                "log level": self._refresh_log_level,
            }
            following = settings.follow(
                files, seconds=self.reload_seconds, count=self._count_reload
            )
            stack.callback(asyncio.create_task(following).cancel)
            self._ready = True
            log.info("webhook serves", listen=self.listen, digest=self._settings.digest)
            yield

    async def _review(self, kind: namespaces.Kind, request: web.Request) -> web.Response:
        length = request.content_length
        if length is None:
            raise web.HTTPLengthRequired(text="the request does not say how long its body is")
        if length > self.largest_body:
            self._metrics.reviews.labels(kind, "too-large").inc()
            raise web.HTTPRequestEntityTooLarge(self.largest_body, length)
        held = length if length > LARGE else 0
        if self._held + held > MOST_BYTES:
            self._metrics.reviews.labels(kind, "too-many").inc()
            raise web.HTTPServiceUnavailable(text="too many large reviews at once")
        self._held += held
        response = web.Response()
        try:
            async with asyncio.timeout(self.review_seconds):
                response = self._answer(await request.read(), kind)
                # Send it before `_held` is reduced: it uses memory until the client has read it.
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            self._metrics.reviews.labels(kind, "too-slow").inc()
            if response.prepared and request.transport:
                request.transport.abort()
            raise web.HTTPRequestTimeout(text="the request's body did not arrive") from None
        finally:
            self._held -= held
        return response

    def _answer(self, body: bytes, kind: namespaces.Kind) -> web.Response:
        started = time.perf_counter()
        answer = review.answer_review(body, self._settings, kind)
        self._metrics.observe(kind, answer, time.perf_counter() - started)
        if answer.status != 200 and started - self._warned > WARNING_SECONDS:
            self._warned = started
            log.warning("review refused", namespaces=kind, error=answer.body.decode())
        log.debug("review answered", namespaces=kind, outcome=answer.outcome)
        content_type = "application/json" if answer.status == 200 else "text/plain"
        return web.Response(status=answer.status, body=answer.body, content_type=content_type)

    def _count_reload(self, file: str, result: str) -> None:
        self._metrics.reloads.labels(file, result).inc()

    def _refresh_settings(self) -> bool:
        before, self._settings = self._settings, settings.read_admission(self.settings_file)
        return self._settings != before

    def _refresh_log_level(self) -> bool:
        file = self.log_level_file
        level = file.read_text(errors="replace").strip() if file else self._level
        if level == self._level or level not in logs.LEVELS:
            return False
        logs.configure_logs(level)
        self._level = level
        return True


def main(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM."""
    logs.configure_logs("info")
    try:
        webhook = WebhookServer(
            settings_file=arguments.settings,
            tls_dir=arguments.tls_dir,
            log_level_file=arguments.log_level_file,
            listen=arguments.listen,
            health=arguments.health,
        )
        prometheus_client.ProcessCollector(registry=webhook.registry)
        asyncio.run(webhook.run())
    except OSError as error:
        raise InputError(f"can't serve: {error}") from error
