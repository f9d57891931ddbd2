"""Traces of what is done about pods, sent to an OpenTelemetry collector where one is named.

While something is under way, only the times of its milestones are kept; spans are made of them at
its end, and sent in batches, so nothing waits for a collector.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import os
import pathlib
import random
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec

from integrator_contract import names, service

Attributes = Mapping[str, str | int]

MOST_MILESTONES = 40
"""Of one trace; what is tried for hours has more, and the last ones take the place of others."""
EARLIEST = 3600 * 10**9
"""Nanoseconds by which something may have begun before it was seen, whatever a clock says."""
LONGEST = 253
"""Characters of an attribute, such as a pod's name."""
QUEUE = 2048
"""Spans that wait for the collector; further ones are dropped."""
BATCH_SECONDS = 5.0
"""From the first span that waits to the request that takes it along with those after it."""
EXPORT_SECONDS = 3.0
"""For which a collector is waited for."""
PER_SECOND = 50.0
"""Traces of many things at once: further ones are not sent, for they would show nothing new."""
BURST = 300.0
"""Traces that may be sent at once after a while of few."""
_INTERNAL = 1
"""The kind of a span that is no request of its own."""


@dataclasses.dataclass(slots=True)
class Trace:
    """One thing that is done, from a moment on."""

    since: int
    """In nanoseconds of Unix time, as all times are here."""
    attributes: Attributes
    """What it is about."""
    milestones: list[tuple[str, int, Attributes]] = dataclasses.field(
        default_factory=list[tuple[str, int, Attributes]]
    )
    """Each ends what began with the one before."""


class Traces:
    """Sends traces to a collector, or none.

    Args:
        endpoint: The collector's URL for traces; empty: nothing is traced.
        about: What all of them are about: names of model, application and unit.
        authorities: A file of certificates, as PEM, which are trusted beside the system's; empty:
            there is none. It may change at any time.
        clock: In nanoseconds of Unix time.
    """

    def __init__(
        self,
        endpoint: str,
        about: Mapping[str, str],
        *,
        authorities: str = "",
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._now = clock
        self._left, self._filled = BURST, clock()
        self._sender = _Sender(endpoint, about, authorities) if endpoint else None

    @property
    def are_sent(self) -> bool:
        """Whether anybody takes them."""
        return self._sender is not None

    def begin(self, attributes: Attributes, since: datetime.datetime | None = None) -> Trace:
        """Begin a trace.

        Args:
            attributes: What it is about.
            since: When it began, by whatever clock, if that was before now.
        """
        now = begin = self._now()
        if since is not None:
            begin = min(now, max(now - EARLIEST, int(since.timestamp() * 1e9)))
        return Trace(begin, attributes)

    def reached(self, trace: Trace | None, milestone: str, **attributes: str | int) -> None:
        """Note that something got so far."""
        if trace is None:
            return
        if len(trace.milestones) >= MOST_MILESTONES:
            trace.milestones.pop()
        trace.milestones.append((milestone, self._now(), attributes))

    def end(self, name: str, trace: Trace | None, **attributes: str | int) -> None:
        """Send a trace, unless there are too many."""
        if self._sender is None or trace is None or not self._may_send():
            return
        self._sender.send(name, trace, attributes)

    async def close(self, seconds: float) -> None:
        """Send what is left, but not for long."""
        if self._sender is not None:
            await self._sender.close(seconds)

    def _may_send(self) -> bool:
        now = self._now()
        self._left = min(BURST, self._left + (now - self._filled) / 1e9 * PER_SECOND)
        self._filled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class _Sender:
    """Sends spans in the JSON of OTLP, a request for all those of some seconds.

    Made without the SDK of OpenTelemetry, whose import takes as long as thousands of traces.
    https://opentelemetry.io/docs/specs/otlp/#otlphttp
    """

    def __init__(self, endpoint: str, about: Mapping[str, str], authorities: str) -> None:
        self._endpoint = endpoint
        is_https = endpoint.startswith("https:")
        self._trust = _Trust(pathlib.Path(authorities or os.devnull)) if is_https else None
        self._resource = {"attributes": _listed({"service.name": names.MANAGER, **about})}
        self._spans: list[dict[str, Any]] = []
        self._session: aiohttp.ClientSession | None = None
        self._task: asyncio.Task[None] | None = None

    def send(self, name: str, trace: Trace, attributes: Attributes) -> None:
        """Make spans of a trace, one for the whole and one that ends with each milestone."""
        if len(self._spans) >= QUEUE:
            return
        ids = {"traceId": f"{random.getrandbits(128):032x}"}
        whole = f"{random.getrandbits(64):016x}"
        begin = trace.since
        for milestone, at, own in trace.milestones:
            end = max(begin, at)
            span = {**ids, "spanId": f"{random.getrandbits(64):016x}", "parentSpanId": whole}
            self._spans.append(span | _span(milestone, begin, end, own))
            begin = end
        known = {**trace.attributes, **attributes}
        self._spans.append({**ids, "spanId": whole} | _span(name, trace.since, begin, known))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._batches(), name="traces")

    async def close(self, seconds: float) -> None:
        """Send what waits."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._export()
        if self._session is not None:
            await self._session.close()

    async def _batches(self) -> None:
        while self._spans:
            await asyncio.sleep(BATCH_SECONDS)
            await self._export()
        self._task = None

    async def _export(self) -> None:
        spans, self._spans = self._spans, []
        if not spans:
            return
        scope = {"scope": {"name": __name__}, "spans": spans}
        request = {"resourceSpans": [{"resource": self._resource, "scopeSpans": [scope]}]}
        self._session = self._session or aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=EXPORT_SECONDS)
        )
        # A collector that is away costs its traces, and no line of the log each few seconds.
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
            async with self._session.post(
                self._endpoint,
                data=msgspec.json.encode(request),
                headers={"Content-Type": "application/json"},
                ssl=self._trust.context() if self._trust else True,
            ):
                pass


class _Trust:
    """Whose certificates are believed: of authorities that the system knows or a file has."""

    def __init__(self, file: pathlib.Path) -> None:
        self._file = file
        self._content = b""
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Read the file, and make another context where it has changed.

        Raises:
            OSError: It can't be read, or not as certificates.
            ValueError: It is no text.
        """
        with self._file.open("rb") as file:
            content = file.read(service.LONGEST_AUTHORITIES)
        if self._context is None or content != self._content:
            self._context, self._content = _trusting(content.decode("ascii")), content
        return self._context


def _trusting(authorities: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    # As ops-tracing has it for hooks: an intermediate authority may be all that is sent, and the
    # certificates of self-signed-certificates lack what later versions of Python insist on
    # (github.com/canonical/self-signed-certificates-operator/issues/330).
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if authorities:
        context.load_verify_locations(cadata=authorities)
    return context


def _span(name: str, begin: int, end: int, attributes: Attributes) -> dict[str, Any]:
    return {
        "name": name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(begin),
        "endTimeUnixNano": str(end),
        "attributes": _listed(attributes),
    }


def _listed(attributes: Attributes) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)}}
        if isinstance(value, int)
        else {"key": key, "value": {"stringValue": value[:LONGEST]}}
        for key, value in attributes.items()
    ]
