"""Objects of a cluster, and what the action diagnose says about them."""

import contextlib
import json
import re
import types

from ops import testing

from tests.unit.charm.charm_world import CONNECTED, state
from tests.unit.charm.fake_cluster import plural

MODEL = "kf"
ABOUT_AN_OBJECT = re.compile(
    r"kubectl -n (\S+) (?:get|describe|delete) ([a-z]+)\S* ([a-z0-9]\S*)(?: -o yaml| --|$)"
)
"""A command about one object of a namespace; that of a class may have its group, too."""


def add_pod(fake, name="web-0", namespace=MODEL, *, containers=(), inits=(), spec=None, **fields):
    """Have a pod; its containers are names, or what they have."""

    def listed(given):
        return [{"name": each} if isinstance(each, str) else each for each in given]

    spec = {"containers": listed(containers), "initContainers": listed(inits), **(spec or {})}
    return fake.put("Pod", name, namespace, spec=spec, **fields)


def _asked(ctx):
    return ctx.on.action("diagnose", params={"format": "json"})


def _rows(ctx, *checks):
    rows = [types.SimpleNamespace(**row) for row in json.loads(ctx.action_results["report"])]
    for row in rows:
        assert row.level == "fine" or row.next, row
        for namespace, kind, name in ABOUT_AN_OBJECT.findall(row.next):
            place = {kind, plural(kind)}, namespace, name
            keys = CONNECTED[0].objects
            assert any(key[1] in place[0] and key[2:] == place[1:] for key in keys), row.next
    return [row for row in rows if row.check in checks]


def diagnose(ctx, check, given=None):
    """Run the action; what it says of one check comes back."""
    with contextlib.suppress(testing.ActionFailed):
        ctx.run(_asked(ctx), given or state())
    return _rows(ctx, check)


def diagnose_ingress(world, *checks):
    """Run the action on a world with a gateway; what it says of some checks comes back."""
    with contextlib.suppress(testing.ActionFailed):
        world.hook(_asked)
    return _rows(world.ctx, *checks)


def said(rows):
    """Return the names of messages."""
    return [row.message for row in rows]
