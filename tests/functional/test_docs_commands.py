"""The commands of README.md and the how-to pages for kubectl and istioctl, read by the real ones.

Each option is one that the program has, each kind one that the API server has, and what changes
something is asked for in dry-run mode.
"""

import os
import pathlib
import re
import runpy
import subprocess

import pytest
import yaml

from testbed import programs
from tests.functional import istiod_world

ROOT = pathlib.Path(__file__).parents[2]
COMMANDS = runpy.run_path(str(ROOT / "docs/commands.py"))
PAGES = sorted({block.page for block in COMMANDS["blocks"](ROOT)})
STAND_INS = re.compile(r"\b(?!POST\b)[A-Z][A-Z-]{2,}\b")
"""What a reader fills in."""
READING = ("get", "describe")
CHANGING = ("label", "delete", "patch", "create")
REFUSED = re.compile(
    r"unknown|doesn't have a resource type|[Ii]nvalid|error parsing|must be|unable to|required"
)
"""What an API server or kubectl says of a command that could do nothing on any cluster."""
OF_OTHERS = {"knativeserving", "gateways.gateway.networking.k8s.io"}
"""Kinds whose definitions are not at hand."""


def typed(program):
    """The commands for a program, each with its page."""
    for page in PAGES:
        texts = [block.text for block in COMMANDS["blocks"](ROOT) if block.page == page]
        for name, *words in COMMANDS["words"](texts):
            if name == program:
                yield page, [STAND_INS.sub(lambda found: found[0].lower(), each) for each in words]


def run(kubeconfig, program, *words, text=""):
    return subprocess.run(
        [programs.binary(program), *words],
        cwd=ROOT / "docs/how-to",
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def refused(kubeconfig, program, words):
    """What a program says against the words of a command, if it does."""
    verbs = {*READING, *CHANGING} & {*words[:3]}
    if program == "kubectl" and verbs and not OF_OTHERS & {*words}:
        dry = () if verbs & {*READING} else ("--dry-run=server",)
        done = run(kubeconfig, program, *words, *dry)
        return done.stderr if REFUSED.search(done.stderr) else ""
    end = words.index("--") if "--" in words else len(words)
    asked = run(kubeconfig, program, *words[:end], "--help")
    return asked.stderr if asked.returncode else ""


@pytest.fixture(scope="module")
def defined(control_plane, client):
    """The API server with Istio's kinds, and PyTorchJobs."""
    istiod_world.install_definitions(client)
    folder = programs.directory("training-operator") / "share/manifests/base/crds"
    istiod_world.apply_definitions(client, (folder / "kubeflow.org_pytorchjobs.yaml").read_text())
    return control_plane.kubeconfig


@pytest.mark.parametrize("program", ["kubectl", "istioctl"])
def test_programs_take_every_command_of_the_pages(defined, program):
    found = {
        f"{page}: {' '.join(words)}": refused(defined, program, words)
        for page, words in typed(program)
    }
    assert len(found) > {"kubectl": 35, "istioctl": 6}[program]
    assert {command: problem for command, problem in found.items() if problem} == {}


def manifests():
    """Whole objects that pages show, and the file that a page has people apply."""
    shown = [block.text for block in COMMANDS["blocks"](ROOT, "yaml")]
    whole = [text for text in shown if text.startswith("apiVersion:")]
    return [*whole, (ROOT / "docs/how-to/knative-local-gateway.yaml").read_text()]


def test_the_api_server_takes_every_object_of_the_pages(defined, namespace):
    texts = [text for text in manifests() if "serving.kserve.io" not in text]
    assert len(texts) > 2
    for text in texts:
        objects = list(yaml.safe_load_all(text))
        for each in objects:
            each["metadata"]["namespace"] = namespace
        body = yaml.safe_dump_all(objects)
        done = run(defined, "kubectl", "create", "--dry-run=server", "-f", "-", text=body)
        assert done.returncode == 0, done.stderr
