"""The commands of README.md and the how-to pages: words that Juju, charm and programs take."""

import argparse
import contextlib
import io
import itertools
import pathlib
import re
import runpy
from typing import Any

import jsonschema
import pytest
import yaml

from istio_integrator.config import config
from istio_integrator.kube import errors
from testbed.juju import cli as juju_cli

ROOT = pathlib.Path(__file__).parents[2]
APP = "istio-integrator"
OF_JUJU_ALONE = {
    "download": {"--channel"},
    "offer": set[str](),
    "ssh": {"--container"},
}
"""Commands of Juju 3.6 that the stand-in has not, with options; its reference of commands has all:
documentation.ubuntu.com/juju/3.6/reference/juju-cli."""
NOT_OF_JUJU = {"fake-app", "lead", "wait-for"}
"""Commands that the stand-in alone has, or has in another form."""
STAND_INS = re.compile(r"\b(?!POST\b)[A-Z][A-Z-]{2,}\b")
"""What a reader fills in."""


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs/commands.py"))


def filled(text: str) -> str:
    """Put something in the place of each name in capitals."""
    return STAND_INS.sub(lambda found: "80" if found[0] == "PORT" else found[0].lower(), text)


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
    if name in NOT_OF_JUJU:
        return f"Juju has no {name} like this"
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            arguments = juju_cli.parser().parse_args(words)
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


def test_commands_are_found_at_all(commands):
    every = list(itertools.chain(*(typed(commands, page) for page in ["README.md", *PAGES])))
    assert len(every) > 100
    assert {"config", "deploy", "integrate", "run"} <= {words[0] for words in every}


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("juju config istio-integrator hosts=a.example", ""),
        ("juju config istio-integrator host=a.example", "there is no option host"),
        ("juju config istio-integrator mtls=always", "mtls='always'"),
        ("juju config istio-integrator \\\n  excluded-outbound-ports='[{port: 1}]'", "port"),
        ("juju run istio-integrator/leader diagnose format=json", ""),
        ("juju run istio-integrator/leader diagnose format=xml", "'xml' is not one of"),
        ("juju run istio-integrator/leader diagnose loud=true", "'loud'"),
        ("juju run istio-integrator/leader stop-proxy namespace=a", "'pod' is a required"),
        ("juju run istio-integrator/leader cure", "there is no action cure"),
        ("for app in a b; do juju integrate istio-integrator:x $app; done", "no endpoint of ours"),
        ("juju integrate a:ingress istio-integrator:ingress", ""),
        ("juju deploy istio-integrator --force-it", "--force-it"),
        ("juju deploy istio-integrator --resource image=a", "there is no resource"),
        ("juju deploy ./istio-integrator.charm --trust", "missing OCI images"),
        ("juju deploy ./istio-integrator.charm --resource lifecycle-image=a", ""),
        ("juju wait-for application istio-integrator", "Juju has no"),
        ("juju download istio-integrator --revision=1", "--revision"),
    ],
)
def test_command_that_would_be_refused_is_found(commands, command, problem):
    (found, *_) = (wrong(words[1:]) for words in commands["words"]([command]))
    assert problem in found
    assert bool(problem) == bool(found)


MARKED = """# Page
<!-- not run: a cloud is needed -->

```console
one
```

## Next

- item:

  <!-- run by: test_it -->
  ```console
  two
    three
  ```

```console
four
```
"""


def test_what_is_said_of_a_block_is_for_it_alone_or_for_all_that_follow(commands):
    found = [
        (block.section, block.text, block.kind, block.what)
        for block in commands["of_page"]("page.md", MARKED)
    ]
    assert found == [
        ("Page", "one\n", "not run", "a cloud is needed"),
        ("Next", "two\n  three\n", "run by", "test_it"),
        ("Next", "four\n", "not run", "a cloud is needed"),
    ]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("<!-- run by: test_it -->", ""),
        ("<!-- not run: a cloud is needed -->", ""),
        ("", "no comment says"),
        ("<!-- run by: test_gone -->", "there is no test test_gone"),
        ("<!-- run by: test_other -->", "does not name the page"),
    ],
)
def test_block_that_nobody_runs_is_found(commands, tmp_path, said, words):
    (tmp_path / "docs/how-to").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "docs/how-to/page.md").write_text(f"# Page\n\n{said}\n```console\njuju\n```\n")
    (tmp_path / "tests/test_a.py").write_text('def test_it():\n    run("page")\n')
    (tmp_path / "tests/test_b.py").write_text("def test_other():\n    pass\n")
    found = list(commands["unrun"](tmp_path))
    assert len(found) == bool(words)
    assert all(words in each for each in found)
