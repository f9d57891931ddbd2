"""`sidecar-lifecycle uninjected`: list pods without their sidecar, or have them replaced."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import time
import uuid

import msgspec

from integrator_contract import answers, namespaces, service
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import stale
from sidecar_lifecycle.decide.convergence import facts, memory, outcome, plan
from sidecar_lifecycle.shell import logs
from sidecar_lifecycle.shell.convergence import cluster as hands
from sidecar_lifecycle.shell.kube import client as kube_client
from sidecar_lifecycle.shell.kube import errors
from sidecar_lifecycle.shell.settings import Settings

from . import command

DESCRIPTION = """\
Lists the pods of the model that should have a sidecar and have none, and pods outside of the mesh
that have one, each with the reason.

With --restart it asks the acting `sidecar-lifecycle run` to replace those of Deployments,
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
            "sidecar-lifecycle uninjected --model kubeflow --application istio-integrator",
            "sidecar-lifecycle uninjected --model kubeflow --application istio-integrator"
            " --restart --dry-run",
        ),
    )
    add_scope(parser)
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: in-cluster")
    parser.add_argument("--restart", action="store_true", help="have them replaced")
    parser.add_argument("--dry-run", action="store_true", help="with --restart: only say which")
    parser.add_argument(
        "--force",
        action="store_true",
        help="with --restart: also where a dry run shows that the new pod would be refused",
    )
    parser.add_argument(
        "--pod",
        action="append",
        metavar="NAME",
        help="with --restart: these pods, though they may have a sidecar; several times",
    )
    parser.add_argument(
        "--stale",
        action="store_true",
        help="instead of pods without a sidecar those with an old one",
    )
    parser.set_defaults(main=main)


def add_scope(parser: argparse.ArgumentParser) -> None:
    """Add what decides which pods should have a sidecar."""
    command.add_options(
        parser,
        service.Eligibility,
        defaults={"lifecycle_namespaces": namespaces.kinds(("model",))},
    )
    parser.add_argument(
        "--proxy-revision",
        default="",
        metavar="REV",
        help="that the injector writes into new pods; others are old (default: not known)",
    )
    parser.add_argument(
        "--proxy-version",
        default="",
        metavar="VERSION",
        help="of istiod; a proxy with an earlier one is old (default: not known)",
    )


def main(args: argparse.Namespace) -> int:
    """Run the command."""
    logs.configure("warning")
    settings = Settings(
        **service.values(service.Eligibility, args),
        unit="",
        kubeconfig=args.kubeconfig,
        proxy=stale.Proxy(revision=args.proxy_revision, version=args.proxy_version),
    )
    try:
        return asyncio.run(_run(args, settings))
    except errors.KubeError as error:
        raise command.InputError(f"namespace {args.model}: {error}") from error
    except errors.NoAccess as error:
        raise command.InputError(str(error)) from error


async def _run(args: argparse.Namespace, settings: Settings) -> int:
    client = kube_client.connect(settings.kubeconfig)
    try:
        cluster = hands.Cluster(client, settings)
        if args.restart:
            return await _restart(cluster, args)
        decided, reading = await _look(cluster)
        rows = _stale_rows(reading) if args.stale else list(decided.rows)
        elsewhere = [] if args.stale else await cluster.elsewhere()
        for line in _listing(decided, rows, elsewhere, settings):
            print(line)
        return 0
    finally:
        await client.close()


async def _look(cluster: hands.Cluster) -> tuple[outcome.Plan, hands.Reading]:
    """Return what the controller would plan now, but for what it asked the apiserver."""
    remembered = memory.decode((await cluster.recall()).data)
    reading = await hands.read(cluster, await cluster.pods(), remembered, {})
    decided = plan.plan(
        reading.snapshot,
        remembered,
        mode=cluster.settings.convergence,
        limits=outcome.Limits(),
        now=time.time(),
    )
    return decided, reading


def _stale_rows(reading: hands.Reading) -> list[outcome.Row]:
    return [
        outcome.Row(each, Reason.OLD_PROXY, each.stale)
        for each in reading.snapshot.replicas
        if each.stale and not each.terminating
    ]


def _listing(
    decided: outcome.Plan,
    listed: list[outcome.Row],
    elsewhere: list[hands.Elsewhere],
    settings: Settings,
) -> list[str]:
    rows = sorted(listed, key=lambda row: row.replica.name)
    reported = decided.summary.reported + len(elsewhere)
    # The service, which tells the charm of what is new, looks at the model alone.
    word = decided.summary.named()
    summary = dataclasses.replace(decided.summary, reported=reported, word=word)
    lines = [_answer(row, settings.model) for row in rows]
    lines += map(_answer_elsewhere, elsewhere)
    return [*map(_json, lines), json.dumps({"summary": dataclasses.asdict(summary)})]


def _json(answer: answers.PodAnswer) -> str:
    return json.dumps(dataclasses.asdict(answer))


def _answer(row: outcome.Row, namespace: str) -> answers.PodAnswer:
    return answers.PodAnswer(
        namespace=namespace,
        name=row.replica.name,
        workload=row.replica.workload,
        fixable=row.replica.fixable,
        reason=row.reason,
        message=row.message,
    )


def _answer_elsewhere(pod: hands.Elsewhere) -> answers.PodAnswer:
    return answers.PodAnswer(
        namespace=pod.namespace,
        name=pod.name,
        workload="",
        fixable=False,
        reason=Reason.OTHER_NAMESPACE,
        message=f"{pod.message}; {OTHER_NAMESPACE}",
    )


async def _restart(cluster: hands.Cluster, args: argparse.Namespace) -> int:
    decided, reading = await _look(cluster)
    chosen = [
        each
        for each in reading.snapshot.replicas
        if each.fixable and not each.terminating and _is_meant(each, args)
    ]
    unknown = set(args.pod or ()) - {each.name for each in chosen}
    if unknown:
        raise command.InputError(
            f"not there, or to be restarted by hand: {', '.join(sorted(unknown))}"
        )
    listed = _stale_rows(reading) if args.stale else list(decided.rows)
    others = [row for row in listed if not row.replica.fixable]
    rows = [outcome.Row(each, Reason.REQUESTED, each.stale or "to be replaced") for each in chosen]
    for row in [*rows, *others]:
        print(_json(_answer(row, cluster.settings.model)))
    if chosen and not args.dry_run:
        await _request(cluster, tuple(each.uid for each in chosen), force=args.force)
    return 0


def _is_meant(replica: facts.Replica, args: argparse.Namespace) -> bool:
    if args.pod:
        return replica.name in args.pod
    return bool(replica.stale) if args.stale else replica.faulty


async def _request(cluster: hands.Cluster, uids: tuple[str, ...], *, force: bool) -> None:
    """Write the request where the one who leads finds it."""
    request = memory.Request(id=uuid.uuid4().hex, at=time.time(), uids=uids, force=force)
    while True:
        stored = await cluster.recall()
        data = {**stored.data, memory.REQUEST: msgspec.json.encode(request).decode()}
        try:
            await cluster.remember(stored, data)
        except hands.Conflict:
            continue
        return
