"""`python -m juju_standin`: the commands of Juju that the tutorial and the how-to pages use.

Python programs call `juju_standin.client`. The output resembles Juju's, but is not a copy of it.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from juju_standin import bootstrap
from juju_standin.client import ActionFailedError, Juju, JujuError
from testbed import cluster, command_line, errors, images


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as a block."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, which is 1 when the command fails."""
    arguments = parser().parse_args(argv)
    testbed = cluster.Testbed(arguments.testbed)
    current = testbed.state_dir / "juju" / "current-model"
    try:
        name = arguments.model or _read_current(current)
        juju = bootstrap.juju(testbed, name)
        if "resource" in arguments:
            arguments.resource = _load_images(testbed, _read_pairs(arguments.resource))
        arguments.run(juju, arguments)
        if arguments.command == "add-model":
            current.write_text(name)
    except ActionFailedError as error:
        _print_yaml(error.outcome["results"])
        return 1
    except (JujuError, errors.TestbedError, images.ImageError, OSError) as error:
        print(f"ERROR {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    root = command_line.parser(
        "juju_standin",
        "A stand-in for Juju on the testbed; its README lists what it imitates.",
        "python -m juju_standin add-model kubeflow",
        "python -m juju_standin deploy ./build/istio-integrator.charm --trust",
        "python -m juju_standin run istio-integrator/leader diagnose",
    )
    root.add_argument(
        "--testbed", default="default", metavar="NAME", help="of the running testbed"
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND", dest="command")

    def add(
        name: str, text: str, run: Callable[[Juju, argparse.Namespace], object], *positional: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        if "model" not in positional:
            command.add_argument("-m", "--model", default="", help="default: the last one added")
        for argument in positional:
            command.add_argument(argument.rstrip("*"), nargs="*" if "*" in argument else None)
        command.set_defaults(run=run)
        return command

    def add_pairs(command: argparse.ArgumentParser, *flags: str) -> None:
        for flag in flags:
            command.add_argument(flag, action="append", default=[], metavar="KEY=VALUE")

    add("add-model", "Create a model.", lambda juju, _: juju.add_model(), "model")
    command = add("deploy", "Deploy a packed charm.", _deploy, "charm")
    command.add_argument("app", nargs="?", default="")
    command.add_argument("--trust", action="store_true")
    add_pairs(command, "--config", "--resource")
    command = add("refresh", "Change an application's charm or images.", _refresh, "app")
    command.add_argument("--path", default="")
    add_pairs(command, "--resource")
    add("config", "Show or set an application's options.", _config, "app", "values*")
    command = add("trust", "Grant cluster rights.", lambda juju, it: juju.trust(it.app), "app")
    command.add_argument("--scope", choices=["cluster"], required=True)
    add("integrate", "Relate two applications.", _integrate, "first", "second")
    add("remove-relation", "Remove a relation.", _remove_relation, "first", "second")
    command = add("remove-application", "Remove applications.", _remove_application, "apps*")
    command.add_argument("--no-prompt", action="store_true", help="accepted: there is no prompt")
    add("run", "Run an action and wait for its end.", _run, "unit", "action", "values*")
    add("debug-log", "Print the model's log.", lambda juju, _: print(juju.debug_log(), end=""))
    command = add("status", "Show applications and units.", _status)
    command.add_argument("--relations", action="store_true", help="show the relations, too")
    return root


def _deploy(juju: Juju, arguments: argparse.Namespace) -> None:
    juju.deploy(
        _find_charm(arguments.charm),
        arguments.app,
        config=_read_pairs(arguments.config),
        resources=arguments.resource,
        trust=arguments.trust,
    )


def _refresh(juju: Juju, arguments: argparse.Namespace) -> None:
    charm = _find_charm(arguments.path) if arguments.path else None
    juju.refresh(arguments.app, charm, arguments.resource)


def _config(juju: Juju, arguments: argparse.Namespace) -> None:
    values = juju.config(arguments.app, _read_pairs(arguments.values))
    if not arguments.values:
        _print_yaml(values)


def _integrate(juju: Juju, arguments: argparse.Namespace) -> None:
    juju.integrate(arguments.first, arguments.second)


def _remove_relation(juju: Juju, arguments: argparse.Namespace) -> None:
    juju.remove_relation(arguments.first, arguments.second)


def _remove_application(juju: Juju, arguments: argparse.Namespace) -> None:
    for app in arguments.apps:
        juju.remove_application(app)


def _run(juju: Juju, arguments: argparse.Namespace) -> None:
    pairs = _read_pairs(arguments.values).items()
    parameters = {key: yaml.safe_load(text) for key, text in pairs}
    _print_yaml(juju.run(arguments.unit, arguments.action, parameters)["results"])


def _status(juju: Juju, arguments: argparse.Namespace) -> None:
    applications = juju.status()["applications"]
    rows = [("App", "Status", "Units", "Message")]
    units = [("Unit", "Workload", "Agent", "Address", "Message")]
    relations = [("Endpoint", "Related to", "Interface")]
    for name, application in applications.items():
        shown, count = application["application-status"], len(application["units"])
        scale = f"{count}/{application['scale']}"
        rows.append((name, shown["current"], scale, shown.get("message", "")))
        for unit, details in application["units"].items():
            workload, agent = details["workload-status"], details["juju-status"]
            message = workload.get("message") or agent.get("message", "")
            leader = "*" if details.get("leader") else ""
            address = details["address"]
            row = (f"{unit}{leader}", workload["current"], agent["current"], address, message)
            units.append(row)
        relations += [
            (f"{name}:{endpoint}", other["related-application"], other["interface"])
            for endpoint, others in application["relations"].items()
            for other in others
        ]
    tables = [rows, units, relations] if arguments.relations else [rows, units]
    print("\n\n".join(map(_align, tables)))


def _align(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _read_current(file: Path) -> str:
    if not file.exists():
        raise JujuError("no model: use add-model, or -m MODEL")
    return file.read_text()


def _find_charm(text: str) -> Path:
    charm = Path(text)
    if not charm.is_file():
        # Juju 3.6 and 4.0 reject a folder.
        raise JujuError(f"{charm} is not a packed charm")
    return charm


def _load_images(testbed: cluster.Testbed, resources: dict[str, str]) -> dict[str, str]:
    """Replace the short names of the testbed's images by references, once they are loaded."""
    wanted = {value for value in resources.values() if value in images.NAMES}
    loaded = testbed.load_images(wanted) if wanted else {}
    return {key: loaded.get(value, value) for key, value in resources.items()}


def _read_pairs(words: Sequence[str]) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise JujuError(f'expected "key=value", got "{word}"')
    return dict(word.split("=", 1) for word in words)


def _print_yaml(value: Any) -> None:
    print(
        yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000), end=""
    )


if __name__ == "__main__":
    sys.exit(main())
