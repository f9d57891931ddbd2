"""`sidecar-lifecycle uninjected`: list pods without their sidecar, or have them replaced."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import time
import uuid
from collections.abc import Sequence

import msgspec

from integrator_contract import answers
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide.convergence import memory, outcome, plan
from sidecar_lifecycle.shell import logs
from sidecar_lifecycle.shell.convergence import cluster as hands
from sidecar_lifecycle.shell.kube import client as kube_client
from sidecar_lifecycle.shell.kube import errors
from sidecar_lifecycle.shell.settings import Live, Settings

from . import command

DESCRIPTION = """\
Lists the pods of the model that should have a sidecar and have none, and pods outside of the mesh
that have one, each with the reason.

With --restart it asks the leader's `sidecar-lifecycle run` to replace those of Deployments,
StatefulSets and DaemonSets, also while restart-pods is manual: one pod first, the others
when its replacement is Ready, and never against a PodDisruptionBudget. It lists them and returns.
It prints one JSON object per pod, and without --restart a last line with the summary.
"""

OTHER_NAMESPACE = "outside of the model pods are only reported"


def add_parser(subparsers: command.Subparsers) -> None:
    """Add `uninjected`."""
    parser = subparsers.add_parser(
        "uninjected",
        help="list, or replace, pods without the sidecar that they should have",
        **command.texts(
            DESCRIPTION,
            "sidecar-lifecycle uninjected --settings settings.json",
            "sidecar-lifecycle uninjected --settings settings.json --restart --dry-run",
        ),
    )
    command.add_settings(parser)
    parser.add_argument("--restart", action="store_true", help="have them replaced")
    parser.add_argument("--dry-run", action="store_true", help="with --restart: only say which")
    parser.add_argument(
        "--force",
        action="store_true",
        help="with --restart: also where a dry run shows that the new pod would be refused",
    )
    parser.add_argument(
        "--stale",
        action="store_true",
        help="instead of pods without a sidecar those with an old one",
    )
    parser.set_defaults(main=main)


def main(args: argparse.Namespace) -> int:
    """Run the command."""
    logs.configure("warning")
    settings = command.read_settings(args.settings)
    try:
        asyncio.run(_run(args, settings))
    except errors.KubeError as error:
        raise command.InputError(f"namespace {settings.model}: {error}") from error
    except errors.NoAccess as error:
        raise command.InputError(str(error)) from error
    return 0


async def _run(args: argparse.Namespace, settings: Settings) -> None:
    client = kube_client.connect()
    try:
        cluster = hands.Cluster(client, Live(settings))
        decided, reading = await _look(cluster)
        rows = _stale_rows(reading) if args.stale else decided.rows
        if args.restart:
            await _restart(cluster, rows, args)
        else:
            elsewhere = [] if args.stale else await cluster.elsewhere()
            _list(decided.summary, rows, elsewhere, settings.model)
    finally:
        await client.close()


async def _look(cluster: hands.Cluster) -> tuple[outcome.Plan, hands.Reading]:
    """Return what the controller would plan now, but for what it asked the apiserver."""
    remembered = memory.decode((await cluster.recall()).data)
    settings = cluster.settings
    reading = await hands.read(cluster, await cluster.pods(), remembered, {}, settings.proxy)
    decided = plan.plan(
        reading.snapshot,
        remembered,
        mode=settings.convergence,
        limits=outcome.Limits(max_unavailable=settings.restart_max_unavailable),
        now=time.time(),
    )
    return decided, reading


def _stale_rows(reading: hands.Reading) -> tuple[outcome.Row, ...]:
    return tuple(
        outcome.Row(each, Reason.OLD_PROXY, each.stale)
        for each in reading.snapshot.replicas
        if each.stale and not each.terminating
    )


def _list(
    summary: answers.Summary,
    rows: Sequence[outcome.Row],
    elsewhere: Sequence[hands.Elsewhere],
    model: str,
) -> None:
    for row in sorted(rows, key=lambda row: row.replica.name):
        _print(row, model)
    for pod in elsewhere:
        answer = answers.PodAnswer(
            namespace=pod.namespace,
            name=pod.name,
            workload="",
            fixable=False,
            reason=Reason.OTHER_NAMESPACE,
            message=f"{pod.message}; {OTHER_NAMESPACE}",
        )
        print(json.dumps(dataclasses.asdict(answer)))
    # The service, which tells the charm of what is new, looks at the model alone.
    whole = dataclasses.replace(
        summary, reported=summary.reported + len(elsewhere), word=summary.named()
    )
    print(json.dumps({"summary": dataclasses.asdict(whole)}))


def _print(row: outcome.Row, model: str) -> None:
    answer = answers.PodAnswer(
        namespace=model,
        name=row.replica.name,
        workload=row.replica.workload,
        fixable=row.replica.fixable,
        reason=row.reason,
        message=row.message,
    )
    print(json.dumps(dataclasses.asdict(answer)))


async def _restart(
    cluster: hands.Cluster, rows: Sequence[outcome.Row], args: argparse.Namespace
) -> None:
    fixable = [row.replica for row in rows if row.replica.fixable]
    chosen = [each for each in fixable if not each.terminating]
    for each in chosen:
        why = each.stale or "to be replaced"
        _print(outcome.Row(each, Reason.REQUESTED, why), cluster.settings.model)
    for row in rows:
        if not row.replica.fixable:
            _print(row, cluster.settings.model)
    if chosen and not args.dry_run:
        await _request(cluster, tuple(each.uid for each in chosen), force=args.force)


async def _request(cluster: hands.Cluster, uids: tuple[str, ...], *, force: bool) -> None:
    """Write the request where the leader's service finds it."""
    request = memory.Request(id=uuid.uuid4().hex, at=time.time(), uids=uids, force=force)
    text = msgspec.json.encode(request).decode()
    await cluster.remember_entry(memory.REQUEST, text)
