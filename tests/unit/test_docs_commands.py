"""The commands of README.md and the how-to pages: words that Juju, charm and programs take."""

import argparse
import contextlib
import io
import itertools
import pathlib
import re
import runpy
import shlex
import string
from typing import Any

import jsonschema
import pytest
import yaml

from istio_integrator.config import config
from istio_integrator.kube import errors
from istio_integrator.messages import Template
from juju_standin import __main__ as juju_standin

ROOT = pathlib.Path(__file__).parents[2]
APP = "istio-integrator"
OF_JUJU_ALONE = {
    "add-k8s": {"--client"},
    "bootstrap": set[str](),
    "debug-log": {"--include", "--replay"},
    "destroy-model": set[str](),
    "download": {"--channel"},
    "offer": set[str](),
    "ssh": {"--container"},
}
"""Commands of Juju 3.6 that the stand-in has not, with options; its reference of commands has all:
documentation.ubuntu.com/juju/3.6/reference/juju-cli."""
OF_CHARMHUB = {"--channel", "--overlay"}
"""Options of `juju deploy` that the stand-in has not."""
STAND_INS = re.compile(r"\b(?!POST\b)[A-Z][A-Z-]{2,}\b")
"""What a reader fills in."""


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs/commands.py"))


def filled(text: str) -> str:
    """Put something in the place of each name in capitals."""
    examples = {"PORT": "80", "NAME": "a.example"}
    return STAND_INS.sub(lambda found: examples.get(found[0], found[0].lower()), text)


def typed(commands: dict[str, Any], page: str, program: str = "juju") -> list[list[str]]:
    texts = [block.text for block in commands["blocks"](ROOT) if block.page == page]
    found = [words[1:] for words in commands["words"](texts) if words[0] == program]
    return [[filled(word) for word in words] for words in found]


class Charm:
    """The charm's own description."""

    metadata = yaml.safe_load((ROOT / "metadata.yaml").read_text())
    options = yaml.safe_load((ROOT / "config.yaml").read_text())["options"]
    actions = yaml.safe_load((ROOT / "actions.yaml").read_text())

    def configured(self, pairs: list[str]) -> str:
        """What is wrong with options of the charm, set at once."""
        values = {name: option["default"] for name, option in self.options.items()}
        for pair in pairs:
            name, _, text = pair.partition("=")
            if name not in self.options:
                return f"there is no option {name}"
            is_text = self.options[name]["type"] == "string"
            values[name] = text if is_text else yaml.safe_load(text)
        try:
            config.Config.load(values)
        except errors.ConfigError as error:
            return str(error)
        return ""

    def asked(self, name: str, pairs: list[str]) -> str:
        """What is wrong with an action and its parameters, which Juju reads as YAML."""
        if name not in self.actions:
            return f"there is no action {name}"
        action = self.actions[name]
        values = {key: yaml.safe_load(text) for key, _, text in (p.partition("=") for p in pairs)}
        schema = {
            "type": "object",
            "properties": action.get("params", {}),
            "required": action.get("required", []),
            "additionalProperties": False,
        }
        found = jsonschema.Draft202012Validator(schema).iter_errors(values)
        return "; ".join(error.message for error in found)

    def related(self, ends: list[str]) -> str:
        """What is wrong with the ends of a relation."""
        ours = [end.partition(":")[2] for end in ends if end.partition(":")[0] == APP]
        known = {*self.metadata["provides"], *self.metadata["requires"]}
        return "" if len(ours) == 1 and {*ours} <= known else f"no endpoint of ours: {ends}"

    def deployed(self, arguments: argparse.Namespace) -> str:
        """What is wrong with a deployment of this charm."""
        named = {pair.partition("=")[0] for pair in arguments.resource}
        if not named <= {*self.metadata["resources"]}:
            return f"there is no resource {named}"
        if arguments.charm.endswith(".charm") and named != {*self.metadata["resources"]}:
            return "local charm missing OCI images"
        return self.configured(arguments.config)


CHARM = Charm()


def wrong(words: list[str]) -> str:
    """What Juju or the charm would say against a command, empty when both take it."""
    name = words[0]
    if name in OF_JUJU_ALONE:
        used = {word for word in words if word.startswith("--")}
        return " ".join({each.partition("=")[0] for each in used} - OF_JUJU_ALONE[name])
    if name == "deploy" and OF_CHARMHUB & {word.partition("=")[0] for word in words}:
        return "" if APP not in words else "the charm is not on Charmhub"
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            arguments = juju_standin.parser().parse_args(words)
    except SystemExit:
        return said.getvalue()
    return by_charm(name, arguments)


def by_charm(name: str, arguments: argparse.Namespace) -> str:
    """What the charm would say against a command of Juju."""
    if name == "config" and arguments.app == APP:
        return CHARM.configured(arguments.values)
    if name == "run":
        return CHARM.asked(arguments.action, arguments.values)
    if name == "deploy" and APP in arguments.charm:
        return CHARM.deployed(arguments)
    ends = [arguments.first, arguments.second] if "first" in arguments else []
    return CHARM.related(ends) if any(APP in end for end in ends) else ""


PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/how-to").glob("*.md"))


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_juju_and_the_charm_take_every_command_of_a_page(commands, page):
    found = {" ".join(words): wrong(words) for words in typed(commands, page)}
    assert {command: problem for command, problem in found.items() if problem} == {}


SENTENCES = {"add", "delete", "deploy", "give", "if", "let", "make", "query", "take"}
"""First words of remedies that are no command."""
VALUES = {"application": APP, "option": "hosts", "example": "a.example", "label": "a=b"}
ROWS = {row.name: row.value.command for row in Template if row.value.command}


@pytest.mark.parametrize("row", ROWS)
def test_juju_and_the_charm_take_the_command_of_a_message(row):
    names = {name for _, name, *_ in string.Formatter().parse(ROWS[row]) if name}
    command = ROWS[row].format(**{name: VALUES.get(name, "80") for name in names})
    assert ROWS[row].split()[0] in {"juju", "kubectl", "istioctl", "{command}", *SENTENCES}
    _, _, of_juju = command.partition("juju ")
    assert not of_juju or wrong(shlex.split(filled(of_juju.partition(", or ")[0]))) == ""
    verbs = re.findall(r"^kubectl (?:-n \S+ )?(\S+)", command)
    assert {*verbs} <= {"delete", "describe", "get", "label", "logs"}


def test_commands_are_found_and_a_wrong_one_is_refused(commands):
    every = list(itertools.chain(*(typed(commands, page) for page in ["README.md", *PAGES])))
    assert len(every) > 100
    assert {"config", "deploy", "integrate", "run"} <= {words[0] for words in every}
    assert wrong(["config", APP, "host=a.example"]) == "there is no option host"
    assert "'xml' is not one of" in wrong(["run", f"{APP}/leader", "diagnose", "format=xml"])
    assert "--force-it" in wrong(["deploy", APP, "--force-it"])
