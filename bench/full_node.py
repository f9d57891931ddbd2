"""A full node: how long hooks and stops of our own unit take, with and without requests.

Two models have the charm, one of them with its options `cpu` and `memory`. Then turns: with the
node to itself the one without them runs hooks and has Jobs end; beside pods that burn whatever CPU
there is, both do, one after the other. All of it takes six minutes, besides the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import math
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import rounds

SECONDS = 360
"""In which no turn is begun that would end later."""
OPTIONS = {"cpu": "1", "memory": "512Mi"}
STOPS, GAP = 5, 1.0
"""Jobs that end in each cell of the table, and seconds between two of them."""
HOOKS, WITHIN = 3, 45.0
"""Hooks in each cell, of which none is begun after so many seconds, nor waited for any longer."""
STARVED = 180.0
"""Seconds for what is left once the node is quiet again."""
BURNERS = ({"cpu": "100m"}, {"cpu": "100m"}, {}, {})
"""What each of the pods requests that burn CPU, in four processes each."""
BURN = "import os\nos.fork()\nos.fork()\nwhile True: pass"
BURNING = "bench-burning"
HOOK = "config-changed"
UNIT = "istio-integrator-0"
NUMBERS = itertools.count(101)


@dataclasses.dataclass
class Cell:
    """What was measured under one condition; infinite is what did not end in time."""

    hooks: list[float] = dataclasses.field(default_factory=list[float])
    acknowledged: list[float] = dataclasses.field(default_factory=list[float])
    """From the controller's seeing it, as its log says, which may itself come late."""
    answered: list[float] = dataclasses.field(default_factory=list[float])
    """From the API's showing that the payload has ended."""
    restarts: int = 0
    """Of the unit's containers, whose probes fail."""
    cpu: float = 0.0
    """Seconds that all pods of the node had."""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Unit:
    """A model with the charm."""

    juju: Any
    api: Any
    bench: rounds.Bench
    pods: str
    """The cgroup of all pods of the node."""

    async def deploy(self, charm: Any) -> None:
        """Wait until it leads, with the pod that its options ask for."""
        from testbed.kit import juju, observer  # noqa: PLC0415

        await self.juju.add_model()
        await self.juju.deploy(charm, juju.APPLICATION)

        async def is_ready() -> bool:
            pod = await self.api.find("Pod", UNIT, self.juju.model)
            status = await self.juju.status()
            if not pod or not status or not status.is_settled:
                return False
            (found,) = (one for one in pod["spec"]["containers"] if one["name"] == "lifecycle")
            wanted = {key: value for key, value in charm.config.items() if key in OPTIONS}
            has_limits = found["resources"].get("limits", {}) == wanted
            return has_limits and '"leading"' in await self.log()

        await observer.eventually(is_ready, STARVED, f"{self.juju.model} leads")

    async def log(self) -> str:
        """Read what the workload has logged, before its container was started anew, too."""
        from testbed import kubernetes  # noqa: PLC0415

        before = ""
        with contextlib.suppress(kubernetes.ApiError):
            before = await self.api.log(self.juju.model, UNIT, "lifecycle", previous=True)
        return before + await self.api.log(self.juju.model, UNIT, "lifecycle")

    async def restarts(self) -> int:
        """Count how often its containers were started anew."""
        pod = await self.api.get("Pod", UNIT, self.juju.model)
        return sum(one["restartCount"] for one in pod["status"]["containerStatuses"])

    async def settled(self) -> None:
        """Wait until no hook runs."""
        await self.juju.until(lambda status: status.is_settled, STARVED, "settled")

    async def hook(self) -> float:
        """Change an option on which nothing depends, and return how long the hook's process ran.

        It is infinite where it did not end in time, or was ended with its container.
        """
        from testbed.kit import juju, observer  # noqa: PLC0415

        since, before = time.clock_gettime(time.CLOCK_BOOTTIME), await self.restarts()
        await self.juju.set(juju.APPLICATION, gateway_cpu=f"{next(NUMBERS)}m")

        async def begun() -> tuple[float, int] | None:
            return min((each for each in hooks(self.juju.model) if each[0] >= since), default=None)

        try:
            start, process = await observer.eventually(begun, WITHIN, "the hook", every=0.2)
            end = await ended(process, WITHIN)
        except (observer.NotObserved, TimeoutError):
            return math.inf
        return end - start if await self.restarts() == before else math.inf

    async def measure(self, cell: Cell, batch: rounds.Batch, *, turns: int) -> None:
        """Run hooks and then have the Jobs of a batch end."""
        from testbed.kit import observer  # noqa: PLC0415

        begin, used = time.monotonic(), used_by(self.pods)
        until = begin + WITHIN
        before = await self.restarts()
        for _ in range(turns):
            cell.hooks.append(await self.hook())
            if time.monotonic() > until:
                break
        batch.end()
        with contextlib.suppress(observer.NotObserved):
            await batch.complete(WITHIN)
        cell.restarts += await self.restarts() - before
        cell.cpu += used_by(self.pods) - used
        cell.seconds += time.monotonic() - begin

    async def collect(self, cell: Cell, batch: rounds.Batch) -> None:
        """Wait for what is left, and add up what became of the stops."""
        await batch.complete(STARVED)
        await self.settled()
        for each in batch.endings(await self.log()):
            for found, first in (
                (cell.acknowledged, "stoppable"),
                (cell.answered, "payload_seen"),
            ):
                took = each.between(first, "acknowledged")
                found.append(math.inf if took is None else took)


def hooks(model: str) -> list[tuple[float, int]]:
    """List the processes of a model's hooks: when they started, since boot, and their ids."""
    marks = {f"JUJU_DISPATCH_PATH=hooks/{HOOK}".encode(), f"JUJU_MODEL_NAME={model}".encode()}
    found: list[tuple[float, int]] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marks <= set((folder / "environ").read_bytes().split(b"\0")):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                start = int(fields[19]) / os.sysconf("SC_CLK_TCK")
                found.append((start, int(folder.name)))
    return found


async def ended(process: int, within: float) -> float:
    """Wait for the end of a process, and return when that was, since boot."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    loop, is_over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, is_over.set)
    try:
        async with asyncio.timeout(within):
            await is_over.wait()
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def used_by(cgroup: str) -> float:
    """Return the seconds of CPU that a cgroup has used, by either version of cgroups."""
    from testbed import namespaces  # noqa: PLC0415

    for folder in namespaces.cgroup_directories(cgroup):
        if (folder / "cpuacct.usage").exists():
            return int((folder / "cpuacct.usage").read_text()) / 1e9
        if (folder / "cpu.stat").exists():
            words = (folder / "cpu.stat").read_text().split()
            if "usage_usec" in words:
                return int(words[words.index("usage_usec") + 1]) / 1e6
    return 0.0


@contextlib.asynccontextmanager
async def burning(api: Any, image: str) -> AsyncIterator[None]:
    """Have pods burn all CPU that they get while the context lasts."""
    from testbed.kit import observer, workloads  # noqa: PLC0415

    await api.apply(workloads.namespace(BURNING))
    for index, requests in enumerate(BURNERS):
        main = workloads.container(
            "main", image, ["python3", "-c", BURN], resources={"requests": requests}
        )
        await api.create(workloads.pod(f"burns-{index}", BURNING, workloads.template([main])))

    async def all_run() -> bool:
        phases = [each["status"].get("phase") for each in await api.list("Pod", BURNING)]
        return phases == ["Running"] * len(BURNERS)

    async def all_gone() -> bool:
        return not await api.list("Pod", BURNING)

    try:
        await observer.eventually(all_run, 240, "pods that burn CPU")
        yield
    finally:
        for index in range(len(BURNERS)):
            await api.delete("Pod", f"burns-{index}", BURNING, grace=0)
        await observer.eventually(all_gone, 240, "no pod that burns CPU")


async def turn(cells: dict[str, Cell], without: Unit, served: Unit, number: int) -> None:
    """Measure each condition once."""
    kinds = ["classic"] * STOPS
    quiet, starved, kept = cells.values()
    async with contextlib.AsyncExitStack() as stack:
        first, second, third = await asyncio.gather(
            *(
                stack.enter_async_context(unit.bench.running(kinds, GAP))
                for unit in (without, without, served)
            )
        )
        await without.measure(quiet, first, turns=HOOKS)
        await without.collect(quiet, first)
        async with burning(without.api, without.bench.image):
            both = [(without, starved, second), (served, kept, third)]
            for unit, cell, batch in both[:: 1 if number % 2 else -1]:
                await unit.measure(cell, batch, turns=HOOKS)
        for unit, cell, batch in both:
            await unit.collect(cell, batch)


def shown(values: list[float], share: float) -> str:
    """Write a quantile, in seconds."""
    from testbed.kit import timeline  # noqa: PLC0415

    if not values:
        return "-"
    found = timeline.quantile(sorted(values), share)
    return "not in time" if math.isinf(found) else f"{found:.3f}"


def table(cells: dict[str, Cell]) -> str:
    """Return the table of all conditions."""
    lines = [f"{'seconds: median, p90 (count)':<40}" + "".join(f"{one:>28}" for one in cells)]
    for title, field in (
        ("a stop, seen → acknowledged", "acknowledged"),
        ("a stop, shown by the API → acknowledged", "answered"),
        (f"a hook, {HOOK}", "hooks"),
    ):
        texts: list[str] = []
        for cell in cells.values():
            values = getattr(cell, field)
            texts.append(f"{shown(values, 0.5)}, {shown(values, 0.9)} ({len(values)})")
        lines.append(f"{title:<40}" + "".join(f"{text:>28}" for text in texts))
    for title, found in (
        ("restarts of the unit's containers", [str(one.restarts) for one in cells.values()]),
        (
            "cores that all pods of the node had",
            [f"{one.cpu / one.seconds:.2f}" for one in cells.values()],
        ),
    ):
        lines.append(f"{title:<40}" + "".join(f"{text:>28}" for text in found))
    return "\n".join(lines)


async def measure(testbed: Any, api: Any, charms: Any) -> None:
    """Deploy the charm twice, and measure it."""
    from testbed import components  # noqa: PLC0415
    from testbed.kit import juju  # noqa: PLC0415

    pods = components.cgroup(testbed.name, 0)

    def unit(model: str) -> Unit:
        bench = rounds.Bench(api, charms.payload_image, namespace=model)
        return Unit(juju.Juju(testbed, model), api, bench, pods)

    without, served = unit("bench-without"), unit("bench-with")
    config = {**charms.integrator.config, **OPTIONS}
    try:
        await without.deploy(charms.integrator)
        await served.deploy(dataclasses.replace(charms.integrator, config=config))
        await turns(without, served)
    finally:
        for each in (without, served):
            with contextlib.suppress(juju.JujuError):
                await each.juju.do("destroy_model", force=True)


async def turns(without: Unit, served: Unit) -> None:
    """Run turns as long as there is time, and print the table after each."""
    cells = {name: Cell() for name in ("quiet", "full, no requests", "full, with requests")}
    begin, longest = time.monotonic(), 0.0
    for number in itertools.count(1):
        started = time.monotonic()
        if number > 1 and started - begin + longest > SECONDS:
            break
        print(f"  turn {number}", file=sys.stderr)
        await turn(cells, without, served, number)
        longest = max(longest, time.monotonic() - started)
        print(table(cells), flush=True)
