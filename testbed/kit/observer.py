"""Follow pods and jobs of the cluster and wait until something is true of them."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from testbed import kubernetes
from testbed.kit import timeline

T = TypeVar("T")


class NotObserved(Exception):  # noqa: N818  (a finding, not a fault)
    """What was waited for did not come in time."""


@dataclasses.dataclass
class JobLine:
    """The history of one Job or TFJob: when each condition was first seen to be true."""

    kind: str
    namespace: str
    name: str
    uid: str
    conditions: dict[str, float] = dataclasses.field(default_factory=dict)
    deleted: float | None = None

    def since(self, *types: str) -> float | None:
        """When the first of these conditions was seen."""
        return min((self.conditions[t] for t in types if t in self.conditions), default=None)

    @property
    def succeeded_at(self) -> float | None:
        """When a Job was Complete, or a TFJob Succeeded."""
        return self.since("Complete", "Succeeded")

    @property
    def failed_at(self) -> float | None:
        """When it had failed for good."""
        return self.since("Failed")

    @property
    def has_ended(self) -> bool:
        """Whether it has succeeded or failed."""
        return self.succeeded_at is not None or self.failed_at is not None

    def add(self, at: float, event: str, item: kubernetes.Object) -> None:
        """Take in one event of a watch."""
        for condition in item.get("status", {}).get("conditions") or []:
            if condition["status"] == "True":
                self.conditions.setdefault(condition["type"], at)
        if event == "DELETED":
            self.deleted = at


class Observer:
    """Everything seen of pods and jobs since the start."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.timeline = timeline.Timeline()
        self.jobs: dict[str, JobLine] = {}
        self._clock = clock
        self._begin = clock()
        self._changed = asyncio.Condition()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._begin

    def job(self, namespace: str, name: str) -> JobLine | None:
        """The newest job of that name."""
        found = [j for j in self.jobs.values() if (j.namespace, j.name) == (namespace, name)]
        return found[-1] if found else None

    async def add(self, event: str, item: kubernetes.Object) -> None:
        """Take in one event of a watch and wake those who wait."""
        at = self.now
        if item["kind"] == "Pod":
            self.timeline.add(at, event, item)
        else:
            metadata = item["metadata"]
            line = self.jobs.setdefault(
                metadata["uid"],
                JobLine(item["kind"], metadata["namespace"], metadata["name"], metadata["uid"]),
            )
            line.add(at, event, item)
        async with self._changed:
            self._changed.notify_all()

    async def until(self, predicate: Callable[[], T | None], within: float, what: str) -> T:
        """Wait until the predicate returns something true, and return that."""
        try:
            async with asyncio.timeout(within), self._changed:
                while not (result := predicate()):
                    await self._changed.wait()
                return result
        except TimeoutError:
            raise NotObserved(f"not seen within {within:g} s: {what}") from None

    async def holds(self, predicate: Callable[[], object], seconds: float, what: str) -> None:
        """Watch that the predicate stays true for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                while predicate():
                    await self._changed.wait()
                raise NotObserved(f"did not last {seconds:g} s: {what}")

    async def ended(self, namespace: str, name: str, within: float) -> JobLine:
        """Wait until a job has succeeded or failed."""

        def line() -> JobLine | None:
            found = self.job(namespace, name)
            return found if found and found.has_ended else None

        return await self.until(line, within, f"job {name} ended")

    async def succeeded(self, namespace: str, name: str, within: float = 60) -> float:
        """Wait until a job has ended, and return when it succeeded."""
        line = await self.ended(namespace, name, within)
        if line.succeeded_at is None:
            raise NotObserved(f"{name} failed")
        return line.succeeded_at

    @contextlib.asynccontextmanager
    async def following(self, api: kubernetes.Api, within: float = 180) -> AsyncIterator[None]:
        """Watch the cluster while the context lasts; enters after the first lists."""
        resources = []
        for kind in ("Pod.", "Job.batch", "TFJob.kubeflow.org"):
            with contextlib.suppress(LookupError):
                resources.append(await api.resource(kind))
        synced = [asyncio.Event() for _ in resources]
        tasks = [
            asyncio.create_task(self._follow(api, resource.path(), event), name=resource.kind)
            for resource, event in zip(resources, synced, strict=True)
        ]
        first = asyncio.gather(*(event.wait() for event in synced))
        try:
            await asyncio.wait(
                [first, *tasks], timeout=within, return_when=asyncio.FIRST_COMPLETED
            )
            for task in tasks:
                if task.done():
                    raise NotObserved(f"no {task.get_name()} can be watched") from task.exception()
            if not first.done():
                late = [
                    r.kind
                    for r, event in zip(resources, synced, strict=True)
                    if not event.is_set()
                ]
                raise NotObserved(f"not listed within {within:g} s: {', '.join(late)}")
            yield
        finally:
            first.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(first, *tasks, return_exceptions=True)

    async def _follow(self, api: kubernetes.Api, path: str, synced: asyncio.Event) -> None:
        async for event, item in api.follow(path):
            if event == "BOOKMARK":
                synced.set()
            else:
                await self.add(event, item)


async def eventually(
    ask: Callable[[], Awaitable[T | None]], within: float, what: str, *, every: float = 0.5
) -> T:
    """Ask the cluster again and again until the answer is true, and return it."""
    answer: T | None = None
    try:
        async with asyncio.timeout(within):
            while not (answer := await ask()):  # noqa: ASYNC110  (the cluster has no event)
                await asyncio.sleep(every)
            return answer
    except TimeoutError:
        raise NotObserved(f"not seen within {within:g} s: {what} (last: {answer!r})") from None
