"""`sidecar-lifecycle explain`: say what would be done about pods, and why."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

import msgspec

from integrator_contract import answers, service
from sidecar_lifecycle.decide import finished, payload
from sidecar_lifecycle.model import types

from . import command, documents


def add_parser(subparsers: command.Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "explain",
        help="say whether the proxy of a pod would be stopped, and why",
        **command.texts(
            "Read pods as JSON or YAML and say whether their proxy would be stopped.",
            "kubectl get pods -o json | sidecar-lifecycle explain",
            "sidecar-lifecycle explain pod.yaml --wait-for-containers main,wait --output json",
        ),
    )
    parser.add_argument("source", nargs="?", default="-", metavar="FILE", help="or - (default)")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    add_policy_options(parser)
    parser.set_defaults(main=main)


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """Add the options by which the rules are tuned."""
    command.add_options(parser, service.Rules)


def policy(arguments: argparse.Namespace) -> finished.Policy:
    """Return what those options say."""
    return finished.Policy(**service.values(service.Rules, arguments))


def main(arguments: argparse.Namespace) -> int:
    """Print a decision per pod."""
    rules = policy(arguments)
    for document in documents.read(arguments.source):
        pod = _pod(document)
        decision = finished.finished(pod, rules)
        if arguments.output == "json":
            ended = payload.ended_at(
                pod, wait_for=rules.wait_for_containers, ignore=rules.ignore_containers
            )
            known = dataclasses.replace(answer(pod, decision), ended=ended or "")
            print(json.dumps(known.line()))
        else:
            print(text(pod, decision))
    sys.stdout.flush()
    return 0


def _pod(document: documents.Document) -> types.Pod:
    try:
        return msgspec.convert(types.without_nulls(document.object), types.Pod)
    except (msgspec.ValidationError, OverflowError) as error:
        raise command.InputError(f"{document.where} is no valid Pod: {error}") from error


def answer(pod: types.Pod, decision: finished.Decision) -> answers.ProxyAnswer:
    """Write a decision about a pod for programs."""
    return answers.ProxyAnswer(
        namespace=pod.metadata.namespace or "",
        name=pod.metadata.name,
        decision=decision.action,
        reason=decision.reason,
        message=decision.message,
        containers=decision.containers,
        unknown=decision.unknown,
        holding=decision.holding,
    )


def text(pod: types.Pod, decision: finished.Decision) -> str:
    """Write a decision about a pod for people."""
    name = "/".join(filter(None, (pod.metadata.namespace, pod.metadata.name)))
    lines = [f"{name}: {decision.action} ({decision.reason}): {decision.message}"]
    if decision.containers:
        lines.append(f"  looked at: {', '.join(decision.containers)}")
    if decision.unknown:
        lines.append(f"  no such container: {', '.join(decision.unknown)}")
    if decision.holding:
        lines.append(f"  still runs and holds the pod: {', '.join(decision.holding)}")
    return "\n".join(map(command.printable, lines))
