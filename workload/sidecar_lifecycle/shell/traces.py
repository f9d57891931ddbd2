"""Traces of what is done about pods, sent to an OpenTelemetry collector where one is named.

While something is under way, only the times of its milestones are kept; spans are made of them at
its end, by a thread of the SDK's own, so nothing here waits for a collector. The SDK is imported
where traces are sent, and only there.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import logging
import threading
import time
from collections.abc import Callable, Mapping

from integrator_contract import names

Attributes = Mapping[str, str | int]

MOST_MILESTONES = 40
"""Of one trace; what is tried for hours has more, and the last ones take the place of others."""
EARLIEST = 3600 * 10**9
"""Nanoseconds by which something may have begun before it was seen, whatever a clock says."""
LONGEST = 253
"""Characters of an attribute, such as a pod's name."""
QUEUE = 2048
"""Spans that wait for the collector; further ones are dropped."""
EXPORT_SECONDS = 3.0
"""For which a collector is waited for, by the thread that sends."""
PER_SECOND = 1.0
"""Traces of many things at once: the others are not sent, for they would cost more than they
show."""
BURST = 10.0
"""Traces that may be sent at once after a while of few."""


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
        clock: In nanoseconds of Unix time.
    """

    def __init__(
        self,
        endpoint: str,
        about: Mapping[str, str],
        *,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._now = clock
        self._left, self._filled = BURST, clock()
        self._sender = _Sender(endpoint, about) if endpoint else None

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
    """The SDK, with a queue and a thread of its own."""

    def __init__(self, endpoint: str, about: Mapping[str, str]) -> None:
        # Some 15 MB and a quarter of a second, for those alone who want traces.
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http import trace_exporter  # noqa: PLC0415
        from opentelemetry.sdk import resources  # noqa: PLC0415
        from opentelemetry.sdk import trace as sdk  # noqa: PLC0415
        from opentelemetry.sdk.trace import export  # noqa: PLC0415

        # A collector that is away would be a line of the log each five seconds.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        exporter = trace_exporter.OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_SECONDS)
        self._provider = sdk.TracerProvider(
            resource=resources.Resource({"service.name": names.MANAGER, **about}),
            span_limits=sdk.SpanLimits(max_attribute_length=LONGEST),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            export.BatchSpanProcessor(exporter, max_queue_size=QUEUE, export_timeout_millis=5000)
        )
        self._tracer = self._provider.get_tracer(__name__)
        self._within = trace.set_span_in_context

    def send(self, name: str, trace: Trace, attributes: Attributes) -> None:
        """Make spans of a trace, one for the whole and one that ends with each milestone."""
        known = {**trace.attributes, **attributes}
        whole = self._tracer.start_span(name, start_time=trace.since, attributes=known)
        within = self._within(whole)
        begin = trace.since
        for milestone, at, own in trace.milestones:
            span = self._tracer.start_span(
                milestone, context=within, start_time=begin, attributes=own
            )
            begin = max(begin, at)
            span.end(end_time=begin)
        whole.end(end_time=begin)

    async def close(self, seconds: float) -> None:
        # The SDK waits for as long as the collector does, so it may have to be left behind.
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=shut_down, daemon=True).start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), seconds)
