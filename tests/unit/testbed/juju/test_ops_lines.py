"""Charms of each line of ops that Charmed Kubeflow's charms come with, from install to remove."""

import json

import pytest

from testbed import environments

from .conftest import pack_tiny

# The quick tier has the one that writes settings as YAML; most of a life with 3 is in the tests of
# hooks and actions.
LINES = (
    pytest.param("2.10", marks=pytest.mark.long),
    "2.17",
    pytest.param("2.23", marks=pytest.mark.long),
    pytest.param("3", marks=pytest.mark.long),
)
NOTE = "lines\nand: 'quotes', \"more\" # and signs"


@pytest.fixture(params=LINES)
def charm(request, tiny, tmp_path):
    """The tiny charm with an older ops, or with the tests' own."""
    if request.param == "3":
        return tiny
    environment = environments.ensure(f"ops-{request.param}")
    packages = next(environment.glob("lib/python*/site-packages"))
    found = [path for path in packages.iterdir() if path.name != "__pycache__"]
    return pack_tiny(tmp_path, found)


def test_a_unit_lives_its_whole_life_with_every_line_of_ops(charm, request, model):
    line = request.node.callspec.params["charm"]
    model.juju.deploy(charm, "tiny", num_units=2)
    for number in range(2):
        model.start_pod(f"tiny/{number}")
    model.wait_idle("tiny")
    model.wait_for_hook("tiny/0", "cluster-relation-changed")

    bags = model.juju.show_unit("tiny/0")["relation-info"][0]
    assert bags["local-unit"]["data"]["unit-cluster-relation-created"] == "written"
    assert bags["application-data"]["greeting"] == "level 1"

    model.juju.config("tiny", {"level": 2})
    model.wait_for_hook("tiny/0", "config-changed", 2)
    model.wait_idle("tiny")
    seen = model.saw("tiny/0")
    assert [facts["seen"] for facts in seen] == list(range(1, len(seen) + 1)), "state is kept"
    assert seen[-1]["note"] == NOTE

    echoed = model.juju.run("tiny/0", "echo", {"word": "hello", "times": 2})
    assert echoed["results"]["words"] == "hello hello"
    results = model.juju.run("tiny/0", "inspect")["results"]
    assert json.loads(results["config"])["level"] == 2
    assert f"ops {line}" in _first_line(model)

    model.juju.remove_application("tiny")
    for unit in ("tiny/0", "tiny/1"):
        model.wait_for_hook(unit, "remove")
    log = model.juju.debug_log()
    assert "hook failed" not in log, log


def _first_line(model):
    return next(text for text in model.juju.debug_log().splitlines() if "up and running" in text)
