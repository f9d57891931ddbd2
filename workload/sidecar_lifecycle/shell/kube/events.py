"""Events about objects, each written once."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
from typing import Literal

import structlog

from integrator_contract.reasons import Reason
from sidecar_lifecycle.model import types

from . import errors
from .client import Client, make_path
from .fence import Fence

log = structlog.get_logger(__name__)

COMPONENT = "istio-integrator"
AT_ONCE = 8
"""Limit of concurrent requests: thousands of pods may end together, and Events can wait."""

Type = Literal["Normal", "Warning"]


class Recorder:
    """Writes Events, and skips an Event that this or another replica has written before."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._fence = Fence()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._writing: set[asyncio.Task[None]] = set()

    def record(
        self, about: types.Object, reason: Reason, message: str, kind: Type = "Normal"
    ) -> None:
        """Start writing an Event in the background; a failure is logged."""
        event = _make_event(about, reason, message, kind)
        task = asyncio.create_task(self._write(event), name="event")
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def drain(self, seconds: float) -> None:
        """Wait for the pending Events, then cancel those that took too long."""
        if self._writing:
            _, late = await asyncio.wait(self._writing, timeout=seconds)
            for task in late:
                task.cancel()

    async def _write(self, event: types.Event) -> None:
        meta = event.metadata
        try:
            async with self._slots:
                with self._fence.isolate("report", event):
                    where = make_path(types.Event, meta.namespace)
                    await self._client.request("POST", where, body=event)
        except errors.KubeError as error:
            if not isinstance(error, errors.StatusError) or error.code != 409:
                log.warning(
                    "event not written", name=meta.name, reason=event.reason, error=str(error)
                )


def _make_event(about: types.Object, reason: str, message: str, kind: Type) -> types.Event:
    now = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    meta, api = about.metadata, about.api
    # Equal Events about one object get the same name, so the API server rejects a second one.
    digest = hashlib.sha256(f"{meta.uid}\0{reason}\0{message}".encode()).hexdigest()[:16]
    name = f"{meta.name[:230]}.{digest}"
    return types.Event(
        apiVersion="v1",
        kind="Event",
        metadata=types.ObjectMeta(name=name, namespace=meta.namespace or "default"),
        involvedObject=types.ObjectReference(
            apiVersion=api.version,
            kind=api.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
        ),
        reason=reason,
        message=message[:1024],
        type=kind,
        source=types.EventSource(component=COMPONENT),
        count=1,
        firstTimestamp=now,
        lastTimestamp=now,
    )
