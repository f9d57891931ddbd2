"""`sidecar-lifecycle admission` and `mutate`: serve the webhook, or try its rules by hand."""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import sys

import msgspec

from integrator_contract import namespaces, pods
from sidecar_lifecycle.decide import creation, mutate
from sidecar_lifecycle.shell import logs
from sidecar_lifecycle.shell.admission import settings

from . import command, documents


def add_parser(subparsers: command.Subparsers) -> None:
    """Add both commands."""
    _add_admission(subparsers)
    _add_mutate(subparsers)


def _add_admission(subparsers: command.Subparsers) -> None:
    parser = subparsers.add_parser(
        "admission",
        help="serve the admission webhook",
        **command.texts(
            "Serve the admission webhook, and reload settings and certificate when their files"
            " change.",
            "sidecar-lifecycle admission --settings settings.json --tls-dir tls",
        ),
    )
    parser.add_argument("--settings", required=True, type=pathlib.Path, metavar="FILE")
    parser.add_argument(
        "--tls-dir", required=True, type=pathlib.Path, metavar="DIR", help="tls.crt and tls.key"
    )
    parser.add_argument(
        "--listen",
        default=":8443",
        type=_address,
        metavar="[HOST]:PORT",
        help="for reviews; without a host on every address (default %(default)s)",
    )
    parser.add_argument(
        "--health",
        default=":8080",
        metavar="[HOST]:PORT",
        help="for /livez, /readyz and /metrics (default %(default)s)",
    )
    parser.add_argument("--log-level", choices=tuple(logs.LEVELS), default="info")
    parser.add_argument(
        "--log-level-file",
        type=pathlib.Path,
        metavar="FILE",
        help="names the level, and is read again every second while it serves",
    )
    parser.set_defaults(main=_serve)


def _add_mutate(subparsers: command.Subparsers) -> None:
    parser = subparsers.add_parser(
        "mutate",
        help="say what new pods would get, and why",
        **command.texts(
            "Read pods as JSON or YAML and say what they would get at their creation. Pods of"
            " another namespace than the model's are judged as in a namespace that is in scope.",
            "sidecar-lifecycle mutate pod.yaml --settings settings.json",
            "kubectl get pods -o json | sidecar-lifecycle mutate --settings settings.json"
            " --output json",
        ),
    )
    parser.add_argument("source", nargs="?", default="-", metavar="FILE", help="or - (default)")
    parser.add_argument("--settings", required=True, type=pathlib.Path, metavar="FILE")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.set_defaults(main=_mutate)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > pods.HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not [HOST]:PORT")
    return host.strip("[]"), int(port)


def _serve(arguments: argparse.Namespace) -> int:
    # The server needs aiohttp, which `mutate` and every other command start without.
    import prometheus_client  # noqa: PLC0415

    from sidecar_lifecycle.shell.admission import server  # noqa: PLC0415

    logs.configure(arguments.log_level)
    options = server.Options(
        settings_file=arguments.settings,
        tls_dir=arguments.tls_dir,
        log_level=arguments.log_level,
        log_level_file=arguments.log_level_file,
        listen=arguments.listen,
        health=arguments.health,
    )
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=registry)
    try:
        asyncio.run(server.Server(options, registry).run())
    except settings.SettingsError as error:
        raise command.InputError(f"{arguments.settings}: {error}") from error
    except OSError as error:
        raise command.InputError(f"can't serve: {error}") from error
    return 0


def _mutate(arguments: argparse.Namespace) -> int:
    wanted = _settings(arguments.settings)
    for document in documents.read(arguments.source):
        pod = _pod(document)
        namespace = document.object["metadata"].get("namespace") or wanted.model
        kind: namespaces.Kind = "model" if namespace == wanted.model else "labelled"
        mutation = mutate.mutate(pod, wanted, kind)
        print(
            _as_json(pod, mutation)
            if arguments.output == "json"
            else _as_text(pod, namespace, mutation)
        )
    sys.stdout.flush()
    return 0


def _settings(path: pathlib.Path) -> pods.Settings:
    try:
        return settings.read(path)
    except OSError as error:
        raise command.InputError(f"can't read {path}: {error.strerror}") from error
    except settings.SettingsError as error:
        raise command.InputError(f"{path}: {error}") from error


def _pod(document: documents.Document) -> creation.Pod:
    try:
        return msgspec.convert(document.object, creation.Pod)
    except msgspec.ValidationError as error:
        raise command.InputError(f"{document.where} is no valid Pod: {error}") from error


def _name(pod: creation.Pod) -> str:
    return pod.metadata.name or f"{pod.metadata.generateName or ''}…"


def _as_json(pod: creation.Pod, mutation: creation.Mutation) -> str:
    return json.dumps(
        {
            "name": _name(pod),
            "patch": mutation.patch,
            "applied": mutation.applied,
            "skipped": [skip._asdict() for skip in mutation.skipped],
        }
    )


def _as_text(pod: creation.Pod, namespace: str, mutation: creation.Mutation) -> str:
    lines = [f"{namespace}/{_name(pod)}: {', '.join(mutation.applied) or 'nothing'}"]
    for operation in mutation.patch:
        if operation["op"] == "move":
            lines.append(f"  move {operation['from']} to {operation['path']}")
        else:
            value = json.dumps(operation["value"], ensure_ascii=False)
            lines.append(f"  {operation['op']} {operation['path']} {value}")
    lines += [f"  no {skip.change} ({skip.reason}): {skip.message}" for skip in mutation.skipped]
    return "\n".join(map(command.printable, lines))
