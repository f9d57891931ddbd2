"""Write docs/reference from the sources that hold the truth.

Usage: python docs/generate.py [--check]   (--check: say what differs, change nothing, exit 1)
"""

from __future__ import annotations

import argparse
import ast
import pathlib
import re
import sys
from collections.abc import Iterable
from typing import Any

import prometheus_client
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
_DEFAULT = re.compile(r"\s*\(default(?:%\(\w+\)s|[^)])*\)")
"""The table has a column of its own for it."""


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a Markdown table; line breaks inside a cell become spaces."""
    lines = [list(header)]
    lines.append(["---"] * len(lines[0]))
    lines += [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def configuration() -> str:
    """Describe the options of `juju config`."""
    options: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "config.yaml").read_text())
    sections = [
        f"## {name}\n\n{option['type']}, default {_value(option['default'])}\n\n"
        f"{option['description'].strip()}\n"
        for name, option in sorted(options["options"].items())
    ]
    return (
        "# Configuration\n\n"
        "Set with `juju config istio-integrator OPTION=VALUE`; each takes effect at once. A bad\n"
        "value blocks the unit with a line that names the option, and nothing in the cluster\n"
        "changes until it is corrected.\n\n" + "\n".join(sections)
    )


def actions() -> str:
    """Describe the actions of `juju run`."""
    known: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "actions.yaml").read_text())
    sections: list[str] = []
    for name, action in sorted(known.items()):
        parameters = action.get("params", {})
        rows = [
            (f"`{key}`", value["type"], _value(value.get("default")), value["description"])
            for key, value in parameters.items()
        ]
        body = table(("parameter", "type", "default", "meaning"), rows) if rows else ""
        sections.append(f"## {name}\n\n{action['description'].strip()}\n\n{body}".rstrip() + "\n")
    head = "# Actions\n\nRun with `juju run istio-integrator/leader ACTION [PARAMETER=VALUE]`.\n\n"
    return head + "\n".join(sections)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value not in (None, "") else "empty"


def command_line() -> str:
    """Describe the workload's program from its own parsers."""
    from sidecar_lifecycle import cli  # noqa: PLC0415  (needs workload/ on the path)

    root = cli.parser()
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
            + table(("argument", "meaning", "default"), rows)
            + f"\n```console\n{_examples(parser)}```\n"
        )
    head = (
        "# Command line\n\n`sidecar-lifecycle` is the program of the workload image. The charm "
        "uses it in the Pebble layer\nand by Pebble exec; an operator can, too:\n"
        "`juju ssh --container lifecycle istio-integrator/0 sidecar-lifecycle …`\n\n"
        "Exit codes: 0 done, 1 failed or not all done, 2 bad arguments or input, which the\n"
        "message names.\n"
        "Each command has `--help`; `sidecar-lifecycle --version` prints the version.\n\n"
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
    return "" if unset else _value(value)


def metrics() -> str:
    """Describe what `/metrics` serves."""
    from sidecar_lifecycle import metrics as reconciler  # noqa: PLC0415
    from sidecar_lifecycle.admission import probe, server  # noqa: PLC0415
    from sidecar_lifecycle.convergence import metrics as convergence  # noqa: PLC0415

    own = prometheus_client.CollectorRegistry()
    convergence.Metrics(own)
    probe.Metrics(own)
    admission = prometheus_client.CollectorRegistry()
    server.Metrics(admission)
    reconcilers = [*_families(reconciler.REGISTRY), *_families(own)]
    header = ("metric", "type", "labels", "meaning")
    return (
        "# Metrics\n\nPort 8080, path `/metrics`. What ends in `_seconds` is in seconds, anything "
        "else counts.\nA histogram's buckets end at the values given with it, the last one "
        "nowhere.\n\n"
        "## Of every unit (`sidecar-lifecycle run`)\n\n"
        + table(header, reconcilers)
        + "\n## Of the webhook (`sidecar-lifecycle admission`)\n\n"
        + table(header, _families(admission))
    )


def _families(registry: prometheus_client.CollectorRegistry) -> list[tuple[str, str, str, str]]:
    rows: list[tuple[str, str, str, str]] = []
    for collector in registry._collector_to_names:  # noqa: SLF001  (no public listing)
        labels = ", ".join(getattr(collector, "_labelnames", ()))
        for family in collector.describe() if hasattr(collector, "describe") else ():
            suffix = "_total" if family.type == "counter" else ""
            meaning = family.documentation + _buckets(collector)
            rows.append((f"`{family.name}{suffix}`", family.type, labels, meaning))
    return sorted(rows)


def _buckets(collector: object) -> str:
    if not isinstance(collector, prometheus_client.Histogram):
        return ""
    bounds = collector._kwargs["buckets"]  # noqa: SLF001  (no public listing)
    return f" Buckets: {', '.join(f'{bound:g}' for bound in bounds)}."


def events() -> str:
    """Describe the Events that are written on pods."""
    source = (ROOT / "workload/sidecar_lifecycle/names.py").read_text()
    reasons = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == "EventReason"
    )
    rows: list[tuple[str, str]] = []
    for name, meaning in zip(reasons.body[1::2], reasons.body[2::2], strict=True):
        match name, meaning:
            case (
                ast.Assign(value=ast.Constant(value=str(reason))),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                rows.append((f"`{reason}`", text))
            case _:
                raise ValueError(f"EventReason: {ast.unparse(name)} has no docstring below it")
    return (
        "# Events\n\n"
        "On pods; see them with `kubectl events -n NAMESPACE --for pod/NAME`. The same Event is\n"
        "not written twice within some minutes.\n\n"
        + table(("reason", "meaning"), sorted(rows))
        + f"\nOne more is written by the charm when it is removed: `{_farewell()}`, on each\n"
        "unfinished pod whose proxy nobody will stop any more, with the command that does it.\n"
    )


def _farewell() -> str:
    source = ast.parse((ROOT / "src/farewell.py").read_text())
    return next(
        ast.literal_eval(node.value)
        for node in source.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "REASON"
    )


def access() -> str:
    """Describe the rights in rbac/roles.yaml, with the comments that give their reasons."""
    text = (ROOT / "rbac/roles.yaml").read_text()
    sections: list[str] = []
    for document in text.split("\n---\n"):
        role: dict[str, Any] = yaml.safe_load(document)
        if "rules" not in role:
            continue
        meta = role["metadata"]
        where = f"in `{meta['namespace']}`" if "namespace" in meta else "in the whole cluster"
        rows = [
            (reason, _resources(rule), ", ".join(rule["verbs"]))
            for reason, rule in zip(_reasons(document), role["rules"], strict=True)
        ]
        sections.append(
            f"## {meta['name']}\n\n{role['kind']}, {where}\n\n"
            + table(("why", "resources", "verbs"), rows)
        )
    head = (
        "# Access\n\nThe rights of `rbac/roles.yaml`, for an application `istio-integrator` in "
        "the model `kubeflow`.\n`juju trust` gives all of them and more; see\n"
        "[Deploy without `--trust`](../how-to/without-trust.md).\n\n"
    )
    return head + "\n".join(sections)


def _resources(rule: dict[str, Any]) -> str:
    names = [
        f"`{resource}.{group}`" if group else f"`{resource}`"
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]
    only = rule.get("resourceNames")
    return ", ".join(names) + (f" named {', '.join(only)}" if only else "")


def _reasons(document: str) -> list[str]:
    """Take the comment above each rule; a rule without one shares that of the rule before."""
    reasons: list[str] = []
    comment: list[str] = []
    for line in document[document.index("\nrules:") :].splitlines():
        if line.startswith("# "):
            comment.append(line.removeprefix("# "))
        elif line.startswith("- apiGroups"):
            reasons.append(" ".join(comment) or "\N{DITTO MARK}")
            comment = []
    if reasons[:1] == ["\N{DITTO MARK}"]:
        raise ValueError(f"rbac/roles.yaml: no comment says why:{document}")
    return reasons


PAGES = {
    "access.md": access,
    "events.md": events,
    "configuration.md": configuration,
    "actions.md": actions,
    "command-line.md": command_line,
    "metrics.md": metrics,
}


def main() -> int:
    """Write the pages, or with `--check` compare them."""
    sys.path[:0] = [str(ROOT), str(ROOT / "workload")]
    import testbed.command_line  # noqa: PLC0415  (needs the project on the path)

    parser = testbed.command_line.parser(
        "docs/generate.py",
        "Write docs/reference from the sources that hold the truth.",
        "python docs/generate.py",
        "python docs/generate.py --check",
    )
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 on change")
    check = parser.parse_args().check
    stale = [name for name, page in PAGES.items() if not _is_current(name, page())]
    for name in stale:
        if not check:
            (REFERENCE / name).write_text(PAGES[name]())
        print(f"docs/reference/{name} {'differs: run make docs' if check else 'written'}")
    return 1 if check and stale else 0


def _is_current(name: str, text: str) -> bool:
    path = REFERENCE / name
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
