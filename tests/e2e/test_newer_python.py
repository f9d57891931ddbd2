"""A charm that needs a newer Python than most lives its whole life on a node."""

import os
import pathlib

import pytest

from testbed import cluster
from testbed.juju import bases, bootstrap, pack

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SOURCE = pathlib.Path(__file__).parent / "charms" / "newer"


@pytest.fixture
def testbed(root):
    """A node without Istio."""
    found = cluster.Testbed(f"e2e-newer-{os.getpid()}")
    with found:
        found.up(cluster.Options(without_istio=True))
        yield found


def test_charm_for_a_newer_python_lives_its_whole_life(testbed, tmp_path):
    packed = pack.pack(SOURCE, tmp_path)
    base = bases.choose(SOURCE)
    assert bases.image_of(packed) == base.image
    juju = bootstrap.juju(testbed, "newer")
    juju.add_model({"update-status-hook-interval": "0"})
    image = testbed.load_images(["app"])["app"]
    juju.deploy(packed, resources={"image": image}, num_units=2)
    status = juju.wait_for("newer")
    messages = {
        unit["workload-status"]["message"]
        for unit in status["applications"]["newer"]["units"].values()
    }
    assert len(messages) == 1
    assert messages.pop().startswith(f"level 1, Python {base.python}.")
    bags = juju.show_unit("newer/0")["relation-info"][0]
    assert bags["local-unit"]["data"]["python"].startswith(f"{base.python}.")

    juju.config("newer", {"level": 2})
    juju.wait(lambda found: says(found, "level 2"))
    assert juju.run("newer/0", "words", {"text": "a b c"})["results"]["pairs"] == "a+b|c"

    juju.refresh("newer", packed)
    juju.wait(lambda found: has_run(juju, "upgrade-charm"))
    juju.wait(lambda found: says(found, "level 2"))
    juju.remove_unit("newer")
    juju.wait(lambda found: len(found["applications"]["newer"]["units"]) == 1)
    juju.remove_application("newer")
    juju.wait_gone("newer")
    log = juju.debug_log()
    assert "hook failed" not in log, log
    assert has_run(juju, "remove")


def says(status, words):
    """Whether every unit is active, idle, and says something."""
    units = status["applications"]["newer"]["units"].values()
    return units and all(
        unit["workload-status"]["current"] == "active"
        and unit["juju-status"]["current"] == "idle"
        and words in unit["workload-status"]["message"]
        for unit in units
    )


def has_run(juju, hook):
    """Whether both units have run a hook."""
    lines = [line for line in juju.debug_log().splitlines() if f'ran "{hook}" hook' in line]
    return all(any(line.startswith(f"unit-newer-{one}") for line in lines) for one in range(2))
