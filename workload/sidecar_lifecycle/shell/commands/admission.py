"""`sidecar-lifecycle admission`: serve the webhook."""

from __future__ import annotations

import argparse
import asyncio
import pathlib

import prometheus_client

from integrator_contract import pods
from sidecar_lifecycle.shell import logs
from sidecar_lifecycle.shell.admission import server, settings

from . import command


def add_parser(subparsers: command.Subparsers) -> None:
    """Add the command."""
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
    parser.add_argument(
        "--log-level-file",
        type=pathlib.Path,
        metavar="FILE",
        help="names the level of the log, and is read every second; info without it",
    )
    parser.set_defaults(main=_serve)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > pods.HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not [HOST]:PORT")
    return host.strip("[]"), int(port)


def _serve(arguments: argparse.Namespace) -> int:
    logs.configure("info")
    options = server.Options(
        settings_file=arguments.settings,
        tls_dir=arguments.tls_dir,
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
