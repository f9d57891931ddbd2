"""One of several acts: leadership by a Lease of coordination.k8s.io."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
import tenacity

from sidecar_lifecycle.model import types

from . import errors
from .client import Client, answer, path

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How fast leadership moves; the order duration > deadline > retry must hold."""

    duration: float = 15.0
    """Seconds after which a silent leader is replaced."""
    deadline: float = 10.0
    """Seconds without a successful renewal after which a leader stops acting."""
    retry: float = 2.0
    """Seconds between renewals, and between looks of those who wait."""


def _is_changed(error: BaseException) -> bool:
    """Tell whether another process wrote the Lease after this one had read it."""
    return isinstance(error, errors.StatusError) and error.code in (404, 409)


class Leadership:
    """Takes part in the election while `run` runs.

    `is_leader` says whether to do what only one may do. `is_elected` turns exactly when
    `wait_elected` and `wait_deposed` say so, and may be true for two during some seconds.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        labels: dict[str, str] | None = None,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
        has_ended: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Take part for a unit.

        Args:
            client: the connection.
            namespace: of the Lease.
            name: of the Lease.
            identity: ours, another one for each process.
            labels: of the Lease.
            timing: how fast leadership moves.
            clock: that never goes back, in seconds.
            has_ended: whether the process of an identity is known to be gone, so that nobody
                need wait for its Lease to run out.
        """
        self._client = client
        self._namespace = namespace
        self._name = name
        self._labels = labels or {}
        self._timing = timing or Timing()
        self._clock = clock
        self._has_ended = has_ended
        self._elected = asyncio.Event()
        self._deposed = asyncio.Event()
        self._deposed.set()
        self._renewed_at = float("-inf")
        self._seen = (types.LeaseSpec(), float("-inf"))
        self._written: types.Lease | None = None
        self.identity = identity
        self.reachable = False
        """The last look at the Lease succeeded."""

    @property
    def is_elected(self) -> bool:
        """Whether we lead as far as we know; a renewal may be late."""
        return self._elected.is_set()

    @property
    def is_leader(self) -> bool:
        """Whether we lead, and renewed recently enough that nobody else can."""
        fresh = self._clock() - self._renewed_at < self._timing.deadline
        return self.is_elected and fresh

    @property
    def holder(self) -> str:
        """The identity seen last in the Lease."""
        return self._seen[0].holderIdentity or ""

    async def wait_elected(self) -> None:
        """Return when we lead."""
        await self._elected.wait()

    async def wait_deposed(self) -> None:
        """Return when we do not lead any more."""
        await self._deposed.wait()

    async def run(self) -> None:
        """Take part until cancelled; then give the Lease away at once."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(self._timing.retry)
        finally:
            was_leader = self._elected.is_set()
            self._depose("stopping")
            if was_leader:
                with contextlib.suppress(errors.KubeError, TimeoutError):
                    async with asyncio.timeout(2):
                        await self._release()

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(self._timing.deadline / 2):
                held = await self._acquire_or_renew()
            self.reachable = True
        except (errors.KubeError, TimeoutError) as error:
            held = False
            conflict = isinstance(error, errors.StatusError) and error.code == 409
            self.reachable = conflict
            level = log.debug if conflict else log.warning
            level("lease not renewed", lease=self._name, error=str(error) or "no answer in time")
            if not conflict and self.is_leader:
                return
        if held:
            self._renewed_at = self._clock()
            if not self._elected.is_set():
                log.info("leading", lease=self._name, identity=self.identity)
                self._deposed.clear()
                self._elected.set()
        elif self._elected.is_set():
            mine = self.holder == self.identity
            self._depose("not renewed in time" if mine else f"held by {self.holder or 'nobody'}")

    def _depose(self, reason: str) -> None:
        if self._elected.is_set():
            log.info("not leading any more", lease=self._name, reason=reason)
        self._elected.clear()
        self._deposed.set()

    @tenacity.retry(
        retry=tenacity.retry_if_exception(_is_changed),
        stop=tenacity.stop_after_attempt(2),
        reraise=True,
    )
    async def _acquire_or_renew(self) -> bool:
        # As in client-go, who has just written it need not read it: the API server compares.
        lease, self._written = self._written, None
        lease = lease or await self._read()
        if lease is None:
            await self._write(self._ours(types.Lease()), create=True)
            return True
        now = self._clock()
        if lease.spec != self._seen[0]:
            self._seen = (lease.spec, now)
        holder = lease.spec.holderIdentity or ""
        duration = lease.spec.leaseDurationSeconds or self._timing.duration
        # As in client-go the age is measured on our clock since we saw the Lease change.
        is_free = holder in ("", self.identity) or self._has_ended(holder)
        if not is_free and now - self._seen[1] < duration:
            return False
        await self._write(self._ours(lease))
        return True

    def _ours(self, lease: types.Lease) -> types.Lease:
        now = _timestamp()
        held = lease.spec.holderIdentity == self.identity
        spec = types.LeaseSpec(
            holderIdentity=self.identity,
            leaseDurationSeconds=max(1, round(self._timing.duration)),
            acquireTime=lease.spec.acquireTime if held else now,
            renewTime=now,
            leaseTransitions=(lease.spec.leaseTransitions or 0) + (0 if held else 1),
        )
        return types.Lease(metadata=self._metadata(lease), spec=spec)

    def _metadata(self, lease: types.Lease) -> types.ObjectMeta:
        return types.ObjectMeta(
            name=self._name,
            namespace=self._namespace,
            resourceVersion=lease.metadata.resourceVersion,
            labels={**lease.metadata.labels, **self._labels},
            annotations=lease.metadata.annotations,
            ownerReferences=lease.metadata.ownerReferences,
        )

    async def _release(self) -> None:
        lease = await self._read()
        if lease is None or lease.spec.holderIdentity != self.identity:
            return
        spec = types.LeaseSpec(
            holderIdentity="",
            leaseDurationSeconds=1,
            renewTime=_timestamp(),
            leaseTransitions=lease.spec.leaseTransitions,
        )
        await self._write(types.Lease(metadata=self._metadata(lease), spec=spec))
        log.info("lease given away", lease=self._name)

    async def _read(self) -> types.Lease | None:
        try:
            data = await self._client.request(
                "GET", path(types.Lease, self._namespace, self._name)
            )
        except errors.StatusError as error:
            if error.code == 404:
                return None
            raise
        return answer(data, types.Lease)

    async def _write(self, lease: types.Lease, *, create: bool = False) -> None:
        lease.apiVersion, lease.kind = "coordination.k8s.io/v1", "Lease"
        data = await self._client.request(
            "POST" if create else "PUT",
            path(types.Lease, self._namespace, "" if create else self._name),
            body=lease,
        )
        self._written = answer(data, types.Lease)
        self._seen = (self._written.spec, self._clock())


def _timestamp() -> str:
    now = datetime.datetime.now(tz=datetime.UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
