"""Makes small faults, one at a time, and tells which of them no test notices.

    python -m tests.mutants                            try 400 changes in each room
    python -m tests.mutants --room rules --sample 40   fewer, in one
    python -m tests.mutants --table                    run nothing, print what is known

What is known is kept in build/mutants.jsonl, and a run goes on where the last one ended. A change
is tried anew when its file has changed, and one that no test noticed when tests have.
"""

import argparse
import fcntl
import itertools
import multiprocessing
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Self

from tests.mutants import changes, chosen, running
from tests.mutants.changes import ROOT, Change
from tests.mutants.results import ROOMS, Record, Results, Room, score, survivors, table

FOLDER = ROOT / "build/mutants"
COPY = FOLDER / "copy"
"""In which nothing is ever changed: there it is seen which test runs what."""


class Trial:
    """Tries changes in a copy of the checkout."""

    def __init__(self, results: Results, copy: pathlib.Path) -> None:
        """Keep what is found out in the results.

        Args:
            results: To add to.
            copy: That nobody else uses meanwhile.
        """
        self._results = results
        self._copy = copy
        self._work = copy.with_suffix(".work")
        self._work.mkdir(parents=True, exist_ok=True)
        self._collected: dict[str, chosen.Collected] = {}
        self._control_plane = running.ControlPlane()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._control_plane.end()

    def _suite(self, suite: chosen.Suite) -> chosen.Collected:
        if suite.name not in self._collected:
            with (FOLDER / f"{suite.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._collected[suite.name] = chosen.collect(suite, COPY, FOLDER)
            for name in self._collected[suite.name].failed:
                print(f"left out, since it fails without any change: {name}", flush=True)
        return self._collected[suite.name]

    def try_change(self, change: Change, text: str, room: Room, *, functional: bool) -> Record:
        """Run the tests that are to notice a change, and return what became of it."""
        began = time.monotonic()
        before = (ROOT / change.file).read_text()
        record = Record(
            room=change.room,
            rank=change.rank,
            file=change.file,
            line=change.start[0],
            text=change.line,
            difference=changes.difference(before, text),
            source=self._results.source(change.file),
            tests=self._results.tests,
            functional=functional,
        )
        suites = {"unit": room.suite, "functional": chosen.FUNCTIONAL[room.suite]}
        for verdict in suites if functional else ["unit"]:
            collected = self._suite(suites[verdict])
            if not (tests := collected.choice(change)):
                continue
            ended = self._run(change, text, tests, collected.longest(tests), verdict)
            record.verdict = "survived"
            if ended.how != "passed":
                record.verdict = verdict
                record.how, record.by = ended.how, ended.by or tests[0]
                break
        record.seconds = round(time.monotonic() - began, 1)
        return record

    def _run(
        self, change: Change, text: str, tests: Sequence[str], seconds: float, tier: str
    ) -> running.Ended:
        if tier == "functional":
            self._control_plane.start()
        with running.changed(self._copy / change.file, text):
            ended = running.run(self._copy, tests, seconds=seconds, work=self._work)
        if tier == "functional" and ended.how != "passed":
            # Whatever the tests did not come to take back is none of the next change's.
            self._control_plane.end()
        return ended

    def verify(self, records: Iterable[Record]) -> list[str]:
        """Run the tests that noticed changes once more without any; return those that fail."""
        noticing = [record for record in records if record.by]
        names = sorted({record.by for record in noticing})
        if any(record.verdict == "functional" for record in noticing):
            self._control_plane.start()
        bad: list[str] = []
        while names:
            ended = running.run(self._copy, names, seconds=1800, work=self._work)
            if ended.how == "passed":
                break
            # Where none is named, nothing can be told of any.
            failed = [ended.by] if ended.by in names else names
            bad += failed
            names = [name for name in names if name not in failed]
        return bad


def _tasks(
    rooms: Sequence[str], args: argparse.Namespace, results: Results
) -> list[tuple[Change, str]]:
    """Return what is to be tried: a room after the other in turn, so that all are as far then."""
    queues: list[list[tuple[Change, str]]] = []
    for name in rooms:
        files = changes.sources(ROOMS[name].files)
        sample = changes.all_of(name, files, args.seed)[: args.sample]
        results.sampled(name, [change.rank for change in sample])
        new = [
            change for change in sample if results.known(change, functional=not args.unit) is None
        ]
        print(f"{name}: {len(sample)} changes, {len(new)} of them to be tried", flush=True)
        queues.append([*changes.made(new)] if new else [])
    turns = itertools.zip_longest(*queues)
    return [task for turn in turns for task in turn if task is not None]


def _try_all(
    tasks: Sequence[tuple[Change, str]], args: argparse.Namespace, path: pathlib.Path
) -> None:
    """Try changes, so many side by side, until the time is over."""
    ends = time.monotonic() + args.hours * 3600
    context = multiprocessing.get_context("fork")
    taken = context.Value("i", 0)

    def work(number: int) -> None:
        copy = FOLDER / f"copy-{number}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(COPY, copy, ignore=shutil.ignore_patterns("build", ".hypothesis"))
        results = Results(path)
        with Trial(results, copy) as trial:
            while time.monotonic() < ends:
                with taken:
                    index, taken.value = taken.value, taken.value + 1
                if index >= len(tasks):
                    break
                change, text = tasks[index]
                functional = not args.unit
                record = trial.try_change(change, text, ROOMS[change.room], functional=functional)
                results.add(record)
                print(
                    f"{index + 1}/{len(tasks)} {record.verdict:10} {record.seconds:6.1f} s  "
                    f"{record.place}  {record.difference[:100]}",
                    flush=True,
                )

    workers = [context.Process(target=work, args=(number,)) for number in range(args.processes)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    if any(each.exitcode for each in workers):
        sys.exit("a process that tried changes ended too early")


def _verify(trial: Trial, results: Results, tried: set[str]) -> int:
    """Forget what was noticed by tests that fail without any change, and count these."""
    fresh = [record for record in results.records if record.rank in tried]
    bad = trial.verify(fresh)
    if bad:
        results.forget({record.rank for record in fresh if record.by in bad})
        print(f"fails without any change, so that what it noticed is void: {', '.join(bad)}")
    return len(bad)


def main() -> int:
    """Try changes, if it is not only the table that is asked for, and print what is known."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--room", choices=ROOMS, action="append", help="only this one; repeatable")
    parser.add_argument(
        "--sample", type=int, default=400, help="changes in each room, default 400"
    )
    parser.add_argument("--seed", type=int, default=1, help="which ones, default 1")
    parser.add_argument("--hours", type=float, default=4.0, help="begin none later, default 4")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="side by side, default a core's"
    )
    parser.add_argument("--unit", action="store_true", help="leave out the functional tests")
    parser.add_argument("--table", action="store_true", help="run nothing")
    args = parser.parse_args()
    path = FOLDER.with_suffix(".jsonl")
    results = Results(path)
    failed = 0
    rooms = args.room or [*ROOMS]
    if not args.table:
        chosen.renewed(COPY)
        running.import_libraries()
        tasks = _tasks(rooms, args, results)
        for suite in dict.fromkeys(ROOMS[name].suite for name in rooms):
            chosen.collect(suite, COPY, FOLDER)
        _try_all(tasks, args, path)
        results.read()
        with Trial(results, COPY) as trial:
            failed = _verify(trial, results, {change.rank for change, _ in tasks})
    records = [each for each in results.records if each.room in (args.room or ROOMS)]
    print(*table(records, results.explained), sep="\n")
    print(*survivors(records, results.explained), sep="\n")
    low = [
        room for room in {each.room for each in records} if score(records, room) < ROOMS[room].aim
    ]
    return 1 if failed or low else 0


if __name__ == "__main__":
    sys.exit(main())
