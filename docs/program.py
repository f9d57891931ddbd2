"""The pages about the workload's program: its command line and its metrics."""

from __future__ import annotations

import argparse
import re

import prometheus_client
import tables

_OF_CLIENT = re.compile(r"`process_(?!resident)")
"""Metrics that every Python program has, but for the one that the dashboard shows."""
_DEFAULT = re.compile(r"\s*\(default(?:%\(\w+\)s|[^)])*\)")
"""The table has a column of its own for it."""


def command_line() -> str:
    """Describe the workload's program from its own parsers."""
    # These need workload/ on the path.
    from sidecar_lifecycle.shell import cli  # noqa: PLC0415

    root = cli.make_parser()
    commands = next(
        action
        for action in root._actions  # noqa: SLF001  (argparse has no public way to list)
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    )
    summaries = {choice.dest: choice.help or "" for choice in commands._choices_actions}  # noqa: SLF001
    sections: list[str] = []
    for name, parser in commands.choices.items():
        rows = [
            (_spelled(action), meaning(action), _default(action))
            for action in parser._actions  # noqa: SLF001
            if not isinstance(action, argparse._HelpAction)  # noqa: SLF001
        ]
        about = parser.description or summaries[name]
        sections.append(
            f"## {name}\n\n{about.strip()}\n\n"
            + tables.table(("argument", "meaning", "default"), rows)
            + f"\n```console\n{_examples(parser)}```\n"
        )
    head = (
        "# Command line\n\n`sidecar-lifecycle` is the program of the workload image. The charm "
        "uses it in the Pebble layer\nand by Pebble exec. You can also use it:\n"
        "`juju ssh --container lifecycle istio-integrator/0 sidecar-lifecycle …`\n\n"
        "Exit codes: 0 done, 2 bad arguments or input, which the\n"
        "message names.\n\n"
        "Each command has `--help`. `sidecar-lifecycle --version` prints the version.\n\n"
    )
    return head + "\n".join(sections)


def meaning(action: argparse.Action) -> str:
    """Say what an argument means, without its default."""
    return _DEFAULT.sub("", action.help or "").strip()


def _examples(parser: argparse.ArgumentParser) -> str:
    lines = (parser.epilog or "").splitlines()[1:]
    return "".join(f"{line.strip()}\n" for line in lines)


def _spelled(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest.upper()}`"
    if action.nargs == 0:
        return f"`{action.option_strings[-1]}`"
    values = "|".join(map(str, action.choices)) if action.choices else None
    return f"`{action.option_strings[-1]} {values or action.metavar or action.dest.upper()}`"


def _default(action: argparse.Action) -> str:
    value = action.default
    if isinstance(value, frozenset | set | tuple | list):
        value = ",".join(sorted(map(str, value)))
    unset = value in (None, "", argparse.SUPPRESS) or action.nargs == 0
    return "" if unset else tables.value(value)


def metrics() -> str:
    """Describe what `/metrics` serves."""
    from sidecar_lifecycle.shell import metrics as reconciler  # noqa: PLC0415
    from sidecar_lifecycle.shell.admission import server  # noqa: PLC0415

    admission = prometheus_client.CollectorRegistry()
    server.Metrics(admission)
    rows = _families(reconciler.REGISTRY)
    told = [row for row in rows if row[0].startswith("`istio_integrator")]
    reconcilers = [row for row in rows if row not in told and not _OF_CLIENT.match(row[0])]
    header = ("metric", "type", "labels", "meaning")
    return (
        "# Metrics\n\nPort 8080, path `/metrics`. It also has the other metrics of Prometheus' "
        "Python client\nwhose names begin with `process_`.\n\n"
        "## Of every unit (`sidecar-lifecycle run`)\n\n"
        + tables.table(header, reconcilers)
        + "\n## Of the charm, by way of every unit\n\n"
        "These are as old as the unit's last hook. `update-status` is one every five minutes.\n\n"
        + tables.table(header, told)
        + "\n## Of the webhook (`sidecar-lifecycle admission`)\n\n"
        + tables.table(header, _families(admission))
    )


def _families(registry: prometheus_client.CollectorRegistry) -> list[tuple[str, str, str, str]]:
    rows: list[tuple[str, str, str, str]] = []
    for collector in registry._collector_to_names:  # noqa: SLF001  (no public listing)
        for family in getattr(collector, "describe", collector.collect)():
            named = getattr(collector, "_labelnames", getattr(family, "_labelnames", ()))
            labels = ", ".join(named)
            suffix = "_total" if family.type == "counter" else ""
            meaning = family.documentation + _buckets(collector)
            rows.append((f"`{family.name}{suffix}`", family.type, labels, meaning))
    return sorted(rows)


def _buckets(collector: object) -> str:
    if not isinstance(collector, prometheus_client.Histogram):
        return ""
    bounds = collector._kwargs["buckets"]  # noqa: SLF001  (no public listing)
    return f" Buckets: {', '.join(f'{bound:g}' for bound in bounds)}."
