"""Who reaches whom under each option about callers: over the wire, on real istiod and Envoy.

`security_table.py` has the answers.
"""

import functools
import re

import pytest

from testbed import istio
from tests import waiting
from tests.e2e import security_objects as objects
from tests.e2e import security_table as table
from tests.e2e import security_world as world
from tests.e2e.security_objects import MODEL
from tests.e2e.security_world import APP

UNRELATED = ("kubeflow-profiles", "kfp-profile-controller")
"""Applications that a page relates, of which only the relation is looked at."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def place(node, sdi_charm, tmp_path_factory):
    """The model with its applications, related, all of them in the mesh."""
    with world.World(node) as found:
        # What comes before it would be replaced for its sidecar's sake.
        found.deploy(node.charms.integrator, require_authentication="false")
        for name in objects.CHARMS:
            options = {"arguments": str(objects.PORTS[name]), "prefix": "/x/"}
            resources = {"server-image": found.image}
            found.juju.deploy(sdi_charm, name, config=options, resources=resources, trust=True)
        found.apply(*objects.everything(found.image, tmp_path_factory.mktemp("hook")))
        found.apply(*objects.node_ports(), objects.pipelines())
        for name in objects.CHARMS:
            found.juju.wait_for(name)
            found.declare(name)
        for name in ("store", "kfp-api"):
            found.juju.integrate(f"{APP}:service-mesh", f"{name}:service-mesh")
            found.juju.integrate(f"{name}:callers", "kfp-ui:calls")
        route = "istio-ingress-route-unauthenticated"
        found.juju.integrate(f"{APP}:{route}", f"kfp-ui:{route}")
        available = ("--for=condition=Available", "--timeout=180s")
        for namespace in (MODEL, *objects.USERS, objects.SCRAPERS):
            found.kubectl("wait", "-n", namespace, "deployment", "--all", *available)
        found.says("1 route", 600)
        found.find_pods()
        yield found
    found.kubectl("delete", "validatingwebhookconfiguration", objects.HOOKED)
    for namespace in (*objects.USERS, objects.SHOP, objects.SCRAPERS, objects.HOOKED):
        found.kubectl("delete", "namespace", namespace, "--wait=false")


def switch(place, setting):
    """Have the options so, and wait until they are what they say."""
    options = {**table.OFF, **table.SETTINGS[setting]}
    late = options["mtls"] == "strict" and not options["mtls-exceptions"]
    if late:
        for each in objects.node_ports():
            place.kubectl("delete", "service", "-n", MODEL, each["metadata"]["name"])
    place.juju.config(APP, options)
    policies = {"off": 0, "related": 3}.get(options["authorization"], 5)
    peers = {"inherit": 0}.get(options["mtls"], 1)
    for kind, least in (("authorizationpolicy", policies), ("peerauthentication", peers)):
        is_so = functools.partial(written, place, kind, least)
        assert waiting.eventually(is_so, 120), place.message()
    if late:
        place.apply(*objects.node_ports())


def written(place, kind, least):
    """Whether there are so many policies of ours; none at all where none is asked for."""
    ours = "istio-integrator.charmhub.io/owner"
    count = len(place.kubectl("get", kind, "-n", MODEL, "-l", ours, "-o", "name").split())
    return count >= least if least else count == 0


def answered(place, expected, timeout=90):
    """What everybody is answered once it is as expected, or at the end of the time."""
    seen = {}

    def is_so():
        seen.update(place.observe(expected))
        return seen == expected

    waiting.eventually(is_so, timeout)
    return seen


def differing(seen, expected):
    return {
        f"{who} → {target}": f"{seen[who, target]} instead of {status}"
        for (who, target), status in expected.items()
        if seen[who, target] != status
    }


@pytest.mark.parametrize("setting", table.SETTINGS)
def test_everybody_is_answered_as_was_written_beforehand(place, setting):
    switch(place, setting)
    expected = table.EXPECTED[setting]
    assert differing(answered(place, expected), expected) == {}
    assert place.hooks_run()


@pytest.mark.parametrize("setting", list(table.SETTINGS)[1:])
def test_preview_names_everybody_who_really_loses(place, setting, capsys):
    """What is lost is what the test above has seen."""
    switch(place, "off")
    lines = place.previewed(table.SETTINGS[setting])
    before, after = table.EXPECTED["off"], table.EXPECTED[setting]
    lost = {cell: table.named(lines, *cell) for cell in before if after[cell] != before[cell]}
    with capsys.disabled():
        print(f"\n{setting}: {len(lost)} of {len(before)} calls are lost")
        for (who, target), line in lost.items():
            print(f"  {who:14}{target:15}{after[who, target]:4}  {line[:110]}")
    assert [cell for cell, line in lost.items() if not line] == []


def test_switching_under_load_fails_no_member_and_everything_else_goes_on(place, capsys):
    switch(place, "off")
    before = place.readiness()
    watched = {
        cell: status
        for cell, status in table.EXPECTED["off"].items()
        if all(answers[cell] == status for answers in table.EXPECTED.values())
        and cell[0] in ("kubelet", "api-server", "scraper")
    }
    assert len(watched) == 7, watched
    seen = []
    with place.members("store") as members:
        for setting in ("strict", "off", "strict", "closed+", "related", "off"):
            switch(place, setting)
            told = {("outsider", "store"): table.EXPECTED[setting]["outsider", "store"]}
            assert answered(place, told) == told
            seen.append(place.observe(watched))
            assert place.hooks_run()
    rate = sum(members["answers"].values()) / members["seconds"]
    with capsys.disabled():
        print(f"\nmembers: {members['answers']}, {rate:.0f} a second")
    assert list(members["answers"]) == ["200"], members
    assert seen == [watched] * len(seen)
    assert place.readiness() == before


def test_page_about_strict_mutual_tls_does_what_it_says(place, blocks):
    """docs/how-to/strict-mutual-tls.md."""
    switch(place, "off")
    page = place.shell
    asked, named, switched, outside, back = blocks
    assert "✗ mtls Service store-node (NodePort)" in page.run(asked)
    assert "✗" not in page.run(named)
    page.run(switched)
    place.says("strict mutual TLS")
    closed = {("outsider", "kfp-api"): 0}
    assert answered(place, closed) == closed
    assert page.run(outside).split()[0] == "000"
    page.run(back)
    assert waiting.eventually(lambda: written(place, "peerauthentication", 0), 120)


def test_page_about_users_does_what_it_says(place, blocks):
    """docs/how-to/keep-users-apart.md."""
    switch(place, "off")
    for name in UNRELATED:
        place.juju.fake_app(name, {"service-mesh": {"role": "requires"}})
    place.juju.remove_relation(f"{APP}:service-mesh", "kfp-api:service-mesh")
    assert waiting.eventually(lambda: not place.is_related("kfp-api", "service-mesh"), 180)
    page = place.shell
    seen, related, gateway, asked, switched, of_off, forged, held, back = blocks
    assert "! users apart kubeflow-userid is accepted from any pod by kfp-api" in page.run(seen)
    page.run(related)
    assert istio.GATEWAY in page.run(gateway)
    assert "could call kfp-api" in page.run(asked)
    page.run(switched)
    place.says("callers named for 3 workloads")
    assert "authorization=off: this application writes no" in page.run(of_off)
    refused = {("alice", "kfp-api+claim"): 403, ("alice", "kfp-api"): 200}
    assert answered(place, refused) == refused
    assert page.run(forged).split()[0] == "403"
    assert re.findall(r"(\S) users apart ", page.run(held)) == ["✓", "✓"]
    page.run(back)
    assert waiting.eventually(lambda: written(place, "authorizationpolicy", 0), 120)
