"""`python -m testbed juju`: Juju's words for the stand-in's models."""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from juju_standin import bootstrap, display
from juju_standin.client import ActionFailedError, Juju, JujuError
from testbed import command_line, errors, images

if TYPE_CHECKING:
    from testbed.cluster import Testbed

FORMATS = ("json", "yaml", "tabular")
EXAMPLES = {
    "add-model": ["kubeflow"],
    "destroy-model": ["kubeflow"],
    "model-config": ["", "update-status-hook-interval=0"],
    "deploy": [
        "./build/istio-integrator.charm --trust --resource lifecycle-image=workload",
        "./build/istio-integrator.charm mesh --config hosts=kubeflow.example",
    ],
    "refresh": ["istio-integrator --path ./build/istio-integrator.charm"],
    "config": ["istio-integrator --format json", "istio-integrator hosts=kubeflow.example"],
    "trust": ["istio-integrator --scope cluster"],
    "integrate": ["istio-integrator:ingress kfp-ui:ingress"],
    "relate": ["istio-integrator:ingress kfp-ui:ingress"],
    "remove-relation": ["istio-integrator:ingress kfp-ui:ingress"],
    "add-unit": ["istio-integrator -n 2"],
    "remove-unit": ["istio-integrator"],
    "remove-application": ["istio-integrator --no-prompt"],
    "run": [
        "istio-integrator/0 list-uninjected",
        "istio-integrator/leader diagnose format=json --format json",
    ],
    "resolved": ["istio-integrator/0"],
    "status": ["", "--relations", "--format json"],
    "show-unit": ["istio-integrator/0 --format json"],
    "debug-log": ["--tail --include istio-integrator/0"],
    "fake-app": ["kfp-ui --endpoint ingress --databag ingress.yaml --role requires"],
    "lead": ["istio-integrator/1"],
}
"""What may follow each command's name, for its help."""


class Session:
    """The testbed that commands work on, and the model that they are about."""

    def __init__(self, testbed: "Testbed", arguments: argparse.Namespace) -> None:
        self.testbed = testbed
        self.arguments = arguments
        self.controller = bootstrap.controller(testbed)
        self._current = testbed.state_dir / "juju" / "current-model"

    @property
    def juju(self) -> Juju:
        """The chosen model, or the one last added."""
        model = self.arguments.model
        if not model:
            if not self._current.exists():
                raise JujuError("no model: use add-model, or -m MODEL")
            model = self._current.read_text()
        return bootstrap.model_of(self.testbed, self.controller, model)

    def switch(self, model: str) -> None:
        """Make a model the current one."""
        self._current.write_text(model)


def main(testbed: "Testbed", argv: Sequence[str]) -> int:
    """Run one command; exit code 1 for what failed."""
    arguments = parser().parse_args(list(argv))
    try:
        result: int | None = arguments.main(Session(testbed, arguments))
    except ActionFailedError as error:
        _show(error.outcome, arguments)
        return 1
    except (JujuError, errors.TestbedError, images.ImageError, OSError) as error:
        print(f"ERROR {error}", file=sys.stderr)
        return 1
    return result or 0


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    root = command_line.parser(
        "testbed juju",
        "A stand-in for Juju: enough of it for charms to live on the testbed.",
        "python -m testbed juju add-model kubeflow",
        "python -m testbed juju deploy ./build/istio-integrator.charm --trust",
        "python -m testbed juju status --format json",
        "python -m testbed juju run istio-integrator/0 list-uninjected",
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, run: Callable[[Session], int | None], text: str, *positional: str
    ) -> argparse.ArgumentParser:
        command = command_line.add(commands, name, text, *EXAMPLES.get(name, ()))
        command.add_argument("-m", "--model", default="", help="default: the one last added")
        for argument in positional:
            if argument.endswith("*"):
                command.add_argument(argument[:-1], nargs="*", default=[])
            else:
                command.add_argument(argument)
        command.set_defaults(main=run)
        return command

    command = add("add-model", _add_model, "Create a model.", "name")
    _add_pairs(command, "--config")
    add("models", _models, "List the models.")
    command = add("destroy-model", _destroy_model, "Remove a model.", "name")
    command.add_argument("--force", action="store_true", help="run no hooks")
    command.add_argument("--no-prompt", action="store_true", help="accepted: there is no prompt")
    command = add("model-config", _model_config, "Show or set model options.", "values*")
    command.add_argument("--reset", default="")
    command = add("deploy", _deploy, "Deploy a charm, a .charm file.", "charm")
    command.add_argument("app", nargs="?", default="")
    command.add_argument("--trust", action="store_true")
    command.add_argument("-n", "--num-units", type=int, default=1)
    _add_pairs(command, "--config")
    _add_pairs(command, "--resource")
    command = add("refresh", _refresh, "Change an application's charm or images.", "app")
    command.add_argument("--path", default="")
    _add_pairs(command, "--resource")
    command = add("config", _config, "Show or set options.", "app", "values*")
    command.add_argument("--reset", default="")
    _add_format(command)
    command = add("trust", _trust, "Give an application the whole cluster.", "app")
    command.add_argument("--scope", choices=("cluster",), default="cluster")
    command.add_argument("--remove", action="store_true")
    for name in ("integrate", "relate"):
        add(name, _integrate, "Relate two applications.", "first", "second")
    add("remove-relation", _remove_relation, "Remove a relation.", "first", "second")
    for name, run, text in (
        ("add-unit", _add_unit, "Add units."),
        ("remove-unit", _remove_unit, "Remove the units with the highest numbers."),
    ):
        command = add(name, run, text, "app")
        command.add_argument("-n", "--num-units", type=int, default=1)
    command = add("remove-application", _remove_application, "Remove applications.", "apps*")
    command.add_argument("--force", action="store_true", help="run no hooks")
    command.add_argument("--no-prompt", action="store_true", help="accepted: there is no prompt")
    _add_observing(add)
    return root


def _add_observing(add: Callable[..., argparse.ArgumentParser]) -> None:
    command = add("run", _run, "Run an action and wait for it.", "unit", "action", "values*")
    command.add_argument("--wait", type=_seconds, default=300.0)
    _add_format(command)
    command = add("resolved", _resolved, "Retry a failed hook.", "unit")
    command.add_argument("--no-retry", action="store_true")
    command = add("status", _status, "Show the model.")
    command.add_argument("--relations", action="store_true", help="and who is related to whom")
    _add_format(command, default="tabular")
    _add_format(add("show-unit", _show_unit, "Show a unit and its relations' data.", "unit"))
    command = add("debug-log", _debug_log, "Show the model's log.")
    command.add_argument("--tail", action="store_true", help="and follow it")
    command.add_argument("--include", default="", help="only lines of this unit or application")
    command = add("fake-app", _fake_app, "Create or change a scripted application.", "name")
    command.add_argument("--endpoint", required=True)
    command.add_argument("--databag", type=Path, required=True, help="YAML: application, unit")
    command.add_argument("--interface", default="", help="empty fits every interface")
    command.add_argument("--role", choices=("provides", "requires"), default="provides")
    add("lead", _lead, "Move leadership to a unit (not a command of Juju).", "unit")


def _add_pairs(command: argparse.ArgumentParser, flag: str) -> None:
    command.add_argument(flag, action="append", default=[], metavar="KEY=VALUE")


def _add_format(command: argparse.ArgumentParser, default: str = "yaml") -> None:
    command.add_argument("--format", "--output", dest="format", choices=FORMATS, default=default)


def _add_model(session: Session) -> None:
    name = session.arguments.name
    Juju(session.controller, name).add_model(_pairs(session.arguments.config))
    session.switch(name)


def _models(session: Session) -> None:
    for name in session.controller.command("models"):
        print(name)


def _destroy_model(session: Session) -> None:
    Juju(session.controller, session.arguments.name).destroy_model(force=session.arguments.force)


def _model_config(session: Session) -> None:
    arguments = session.arguments
    reset = tuple(filter(None, arguments.reset.split(",")))
    values = session.juju.model_config(_pairs(arguments.values), reset)
    if not arguments.values and not reset:
        print(display.document(values), end="")


def _deploy(session: Session) -> None:
    arguments = session.arguments
    session.juju.deploy(
        _charm(session, arguments.charm),
        arguments.app,
        config=_pairs(arguments.config),
        resources=_images(session, _pairs(arguments.resource)),
        trust=arguments.trust,
        num_units=arguments.num_units,
    )


def _refresh(session: Session) -> None:
    arguments = session.arguments
    session.juju.refresh(
        arguments.app,
        _charm(session, arguments.path) if arguments.path else None,
        _images(session, _pairs(arguments.resource)),
    )


def _config(session: Session) -> None:
    arguments = session.arguments
    reset = tuple(filter(None, arguments.reset.split(",")))
    pairs = [word for word in arguments.values if "=" in word]
    keys = [word for word in arguments.values if "=" not in word]
    values = session.juju.config(arguments.app, _pairs(pairs), reset)
    if keys:
        print("\n".join(str(values.get(key, "")) for key in keys))
    elif not pairs and not reset:
        _show(values, arguments)


def _trust(session: Session) -> None:
    session.juju.trust(session.arguments.app, remove=session.arguments.remove)


def _integrate(session: Session) -> None:
    session.juju.integrate(session.arguments.first, session.arguments.second)


def _remove_relation(session: Session) -> None:
    session.juju.remove_relation(session.arguments.first, session.arguments.second)


def _add_unit(session: Session) -> None:
    session.juju.add_unit(session.arguments.app, session.arguments.num_units)


def _remove_unit(session: Session) -> None:
    session.juju.remove_unit(session.arguments.app, session.arguments.num_units)


def _remove_application(session: Session) -> None:
    for app in session.arguments.apps:
        session.juju.remove_application(app, force=session.arguments.force)


def _run(session: Session) -> None:
    arguments = session.arguments
    parameters = {key: yaml.safe_load(text) for key, text in _pairs(arguments.values).items()}
    outcome = session.juju.run(arguments.unit, arguments.action, parameters, arguments.wait)
    _show(outcome if arguments.format == "json" else outcome["results"], arguments)


def _resolved(session: Session) -> None:
    session.juju.resolved(session.arguments.unit, no_retry=session.arguments.no_retry)


def _status(session: Session) -> None:
    found = session.juju.status()
    if session.arguments.format == "tabular":
        print(display.status(found, relations=session.arguments.relations))
    else:
        _show(found, session.arguments)


def _show_unit(session: Session) -> None:
    unit = session.arguments.unit
    _show({unit: session.juju.show_unit(unit)}, session.arguments)


def _debug_log(session: Session) -> None:
    arguments, juju = session.arguments, session.juju
    tag = arguments.include.replace("/", "-")
    for text in juju.follow_log() if arguments.tail else [juju.debug_log()]:
        for line in text.splitlines():
            if not tag or line.startswith((f"unit-{tag}:", f"unit-{tag}-", f"{tag}:")):
                print(line, flush=True)


def _fake_app(session: Session) -> None:
    arguments = session.arguments
    data: dict[str, Any] = yaml.safe_load(arguments.databag.read_text()) or {}
    unknown = sorted(set(data) - {"application", "unit"})
    if unknown:
        raise JujuError(f"{arguments.databag}: unknown keys {', '.join(unknown)}")
    endpoint = {"role": arguments.role, "interface": arguments.interface, **data}
    session.juju.fake_app(arguments.name, {arguments.endpoint: endpoint})


def _lead(session: Session) -> None:
    session.juju.lead(session.arguments.unit)


def _charm(session: Session, text: str) -> Path:
    """Copy a packed charm into the controller's folder; Juju 3.6 and 4.0 refuse a folder."""
    charms = session.testbed.state_dir / "juju" / "charms"
    charms.mkdir(parents=True, exist_ok=True)
    source = Path(text)
    if source.is_dir():
        raise JujuError("deploying from directory not supported")
    if not source.is_file():
        raise JujuError(f"no charm at {source}")
    target = charms / source.name
    shutil.copy2(source, target)
    return target


def _images(session: Session, resources: dict[str, str]) -> dict[str, str]:
    """Images of the testbed by their short names, loaded; all others as they are."""
    wanted = {value for value in resources.values() if value in images.NAMES}
    loaded = session.testbed.load_images(wanted) if wanted else {}
    return {key: loaded.get(value, value) for key, value in resources.items()}


def _pairs(words: Sequence[str]) -> dict[str, str]:
    result: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator:
            raise JujuError(f'expected "key=value", got "{word}"')
        result[key] = Path(value[1:]).read_text() if value.startswith("@") else value
    return result


def _seconds(text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600}
    if text and text[-1] in units:
        return float(text[:-1]) * units[text[-1]]
    return float(text)


def _show(value: Any, arguments: argparse.Namespace) -> None:
    if getattr(arguments, "format", "yaml") == "json":
        print(json.dumps(value))
    else:
        print(display.document(value), end="")
