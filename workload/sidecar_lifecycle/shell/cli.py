"""The command line of the workload: `sidecar-lifecycle COMMAND`."""

from __future__ import annotations

import argparse
import importlib
import pathlib
import sys
import textwrap
from typing import Any

from integrator_contract import pods, schema, service
from sidecar_lifecycle import __version__
from sidecar_lifecycle.shell import InputError

BAD_INPUT = 2
"""Exit code for an invalid command line or an unreadable document."""
LONGEST_ERROR = 1000
"""In characters, as a quotation from a file may be long."""
_SETTINGS = "of the service, as the charm writes it"
_ADMISSION = "of admission, as its pods have it"
_MODULES = {"run": "run", "admission": "admission.server", "explain": "explain"}


def _parse_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > pods.HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not [HOST]:PORT")
    return host.strip("[]"), int(port)


_FILE: dict[str, Any] = {"type": pathlib.Path, "metavar": "FILE"}
_ADDRESS: dict[str, Any] = {"type": _parse_address, "metavar": "[HOST]:PORT"}
_EVERYWHERE = "; without a host on every address (default: %(default)s)"


def make_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    root = argparse.ArgumentParser(
        prog="sidecar-lifecycle",
        **_make_help_texts(
            "Adds missing Istio sidecars, and stops them when the work is done.",
            "sidecar-lifecycle explain --help",
            "kubectl get pods -o json | sidecar-lifecycle explain",
        ),
    )
    version = f"%(prog)s {__version__} (contract {schema.SCHEMA})"
    root.add_argument("--version", action="version", version=version)
    commands = root.add_subparsers(
        title="commands", required=True, metavar="COMMAND", dest="command"
    )
    run = commands.add_parser(
        "run",
        help="watch pods and act, as the charm's service does",
        **_make_help_texts(
            "Watch pods and act, until SIGTERM. Every unit stops proxies, each later than the one"
            " before it; only Juju's leader evicts and deletes pods.",
            "sidecar-lifecycle run --settings settings.json",
        ),
    )
    word = "that the charm keeps to; --version ends with this program's"
    run.add_argument("--contract", type=_check_contract, metavar="WORD", help=word)
    run.add_argument("--settings", **_FILE, required=True, help=_SETTINGS)
    where = f"for metrics and health{_EVERYWHERE}"
    run.add_argument("--listen", **_ADDRESS, default=":8080", help=where)
    port = "on 127.0.0.1, for requests of the charm (default: %(default)s)"
    run.add_argument("--port", type=int, default=service.LISTENER_PORT, metavar="PORT", help=port)
    admission = commands.add_parser(
        "admission",
        help="serve the admission webhook",
        **_make_help_texts(
            "Serve the admission webhook, and reload settings and certificate when their files"
            " change.",
            "sidecar-lifecycle admission --settings settings.json --tls-dir tls",
        ),
    )
    admission.add_argument("--settings", **_FILE, required=True, help=_ADMISSION)
    keys = {**_FILE, "metavar": "DIR", "help": "tls.crt and tls.key"}
    admission.add_argument("--tls-dir", **keys, required=True)
    where = f"for reviews{_EVERYWHERE}"
    admission.add_argument("--listen", **_ADDRESS, default=":8443", help=where)
    where = f"for /livez, /readyz and /metrics{_EVERYWHERE}"
    admission.add_argument("--health", **_ADDRESS, default=":8080", help=where)
    level = "names the level of the log, and is read every second; info without it"
    admission.add_argument("--log-level-file", **_FILE, help=level)
    explain = commands.add_parser(
        "explain",
        help="print what the charm would do to pods, and why",
        **_make_help_texts(
            "Read a pod or a list of pods as JSON. Print one JSON object per pod: whether its"
            " proxy would be stopped and, with --admission-settings, what admission would change."
            " A pod without a namespace, or in that of the model, counts as a pod of the model.",
            "kubectl get pods -o json | sidecar-lifecycle explain",
            "sidecar-lifecycle explain pod.json --admission-settings settings.json",
        ),
    )
    explain.add_argument("source", nargs="?", default="-", metavar="FILE", help="or - (default)")
    explain.add_argument("--admission-settings", **_FILE, help=_ADMISSION)
    explain.add_argument("--settings", **_FILE, help=_SETTINGS)
    return root


def _make_help_texts(description: str, *examples: str) -> dict[str, Any]:
    return {
        "description": textwrap.fill(description, 79),
        "epilog": "\n  ".join(("examples:", *examples)),
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def _check_contract(text: str) -> str:
    if text != schema.SCHEMA:
        raise argparse.ArgumentTypeError(
            f"the charm keeps to contract {text}, this image to {schema.SCHEMA}:"
            " run both from the same revision of the charm"
        )
    return text


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    arguments = make_parser().parse_args(argv)
    try:
        # Only the command's own module is imported, which saves memory.
        module = importlib.import_module(f"sidecar_lifecycle.shell.{_MODULES[arguments.command]}")
        module.main(arguments)
    except InputError as error:
        # The text may quote names from other teams, and control characters affect a terminal.
        text = f"sidecar-lifecycle: {error}"[:LONGEST_ERROR]
        shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
        print(shown, file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # The reader of the output, such as `head`, has ended.
        sys.stderr.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
