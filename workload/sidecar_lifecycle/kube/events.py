"""Events on objects, the same one not twice."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

import structlog
from lightkube.core import resource

from . import errors, types
from .client import Client, path

log = structlog.get_logger(__name__)

COMPONENT = "istio-integrator"
REPEAT_AFTER = 600.0
"""Seconds before the same Event about the same object is counted up again."""
REMEMBERED = 4096
"""How many Events we remember having sent."""
AT_ONCE = 8
"""Requests under way; thousands of pods may end together, and Events are not urgent."""

Type = Literal["Normal", "Warning"]


class Recorder:
    """Writes Events; one that was sent lately is not sent again, also by another replica."""

    def __init__(
        self,
        client: Client,
        *,
        instance: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = client.transport
        self._instance = instance
        self._clock = clock
        self._sent: OrderedDict[str, float] = OrderedDict()
        self._places = asyncio.Semaphore(AT_ONCE)

    async def record(
        self, about: types.Object, reason: str, message: str, kind: Type = "Normal"
    ) -> bool:
        """Write an Event about an object; a failure is logged and never raised.

        Returns:
            Whether it was written, as opposed to suppressed or failed.
        """
        name = event_name(about, reason, message)
        now = self._clock()
        if now - self._sent.get(name, float("-inf")) < REPEAT_AFTER:
            return False
        self._remember(name, now)
        event = _event(about, name, reason, message, kind=kind, instance=self._instance)
        try:
            async with self._places:
                await self._write(name, event)
        except errors.KubeError as error:
            self._sent.pop(name, None)
            log.warning("event not written", name=name, reason=reason, error=str(error))
            return False
        return True

    def _remember(self, name: str, now: float) -> None:
        self._sent[name] = now
        self._sent.move_to_end(name)
        while len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)

    async def _write(self, name: str, event: types.Event) -> None:
        namespace = event.metadata.namespace
        try:
            await self._transport.request("POST", path(types.Event, namespace), body=event)
        except errors.StatusError as error:
            if error.code != 409:
                raise
            data = await self._transport.request("GET", path(types.Event, namespace, name))
            count = types.decode_json(data, types.Event).count or 1
            await self._transport.request(
                "PATCH",
                path(types.Event, namespace, name),
                body={"count": count + 1, "lastTimestamp": event.lastTimestamp},
                content_type="application/merge-patch+json",
            )


def event_name(about: types.Object, reason: str, message: str) -> str:
    """Return a name that is the same for the same Event about the same object."""
    identity = f"{about.metadata.uid}\0{reason}\0{message}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return f"{about.metadata.name[:230]}.{digest}"


def _event(
    about: types.Object, name: str, reason: str, message: str, *, kind: Type, instance: str
) -> types.Event:
    definition = resource.api_info(type(about)).resource  # type: ignore[arg-type]
    now = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    namespace = about.metadata.namespace or "default"
    return types.Event(
        apiVersion="v1",
        kind="Event",
        metadata=types.ObjectMeta(name=name, namespace=namespace),
        involvedObject=types.ObjectReference(
            apiVersion=definition.api_version,
            kind=definition.kind,
            namespace=about.metadata.namespace,
            name=about.metadata.name,
            uid=about.metadata.uid,
        ),
        reason=reason,
        message=message[:1024],
        type=kind,
        source=types.EventSource(component=COMPONENT),
        count=1,
        firstTimestamp=now,
        lastTimestamp=now,
        reportingComponent=COMPONENT,
        reportingInstance=instance,
    )
