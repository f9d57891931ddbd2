"""Relation data of any structure: hooks pass, and each sender has its own trouble."""

import json

from ops import testing

from tests.unit.cases import cases
from tests.unit.charm.ingress_world import auth, is_closed, route
from tests.unit.hostile_texts import DEEP


def evil(endpoint, text):
    bag = {"_supported_versions": "[v1]", "data": text}
    return testing.Relation(endpoint, remote_app_name="evil", remote_app_data=bag)


def test_hostile_request_costs_its_application_alone_and_is_named(world):
    escape = '{service: a, port: 1, prefix: "/\\e[2J"}'
    world.related = [route(), auth(), evil("ingress", escape)]
    said = world.status()
    assert isinstance(said, testing.BlockedStatus)
    assert f"ingress:{world.related[-1].id} evil: " in said.message
    assert "prefix='/\\x1b[2J' is not a path" in said.message
    assert said.message.isprintable()
    assert len(world.routes()) == 1
    assert world.guard() is not None


def test_hostile_authentication_leaves_the_model_closed_and_is_named(world):
    number = f"{{service: a, port: {'9' * 5000}, prefix: /a}}"
    world.related = [route(), evil("ingress-auth", number)]
    said = world.status()
    assert isinstance(said, testing.BlockedStatus)
    assert "ingress is closed: ingress-auth of evil" in said.message
    assert "a number of 5000 characters" in said.message
    assert is_closed(world.guard())


def authority(**data):
    data = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()
    }
    return testing.Relation("certificates", remote_app_name="ca", remote_app_data=data)


NO_CERTIFICATE = {"certificate_signing_request": "x", "certificate": "x", "ca": "x"}


@cases(
    "data",
    brackets={"certificates": DEEP},
    number={"certificates": "5"},
    entries={"certificates": [5, None, "x", {}, {"chain": 5}]},
    no_certificate={"certificates": [NO_CERTIFICATE]},
    no_request={"certificates": [{**NO_CERTIFICATE, "certificate_signing_request": ""}]},
    much={"certificates": "x" * (2 << 20)},
    error_brackets={"request_errors": DEEP},
    error={"request_errors": [{"csr": 5, "error": "no"}]},
    capability_brackets={"capabilities": DEEP},
)
def test_hostile_authority_costs_https_alone_and_is_named(world, data):
    world.config = {"hosts": "kf.example.com"}
    world.related = [route(), auth(), authority(**data)]
    said = world.status()
    assert isinstance(said, testing.BlockedStatus)
    assert f"certificates:{world.related[-1].id} ca: " in said.message
    assert said.message.isprintable()
    assert len(world.routes()) == 1
    assert len(world.gateway()["spec"]["servers"]) == 1


BROKEN = [
    *(DEEP, '{"url": "http://[::1"}', '{"url": "http://a/' + "x" * 5000 + '"}', '{"url": 3}'),
    *('{"url": "http://a:port/"}', '{"url": "http:///"}', '{"url": "file://a/etc/passwd"}'),
    *("\x00", '{"url": "http://a/\\u001b[2J"}'),
]


def test_hostile_loki_costs_its_own_logs_alone_and_is_named(world):
    told = {"loki": BROKEN, "logs": ['{"url": "http://loki-1:3100/push"}']}
    units = {name: {n: {"endpoint": url} for n, url in enumerate(told[name])} for name in told}
    logs = [
        testing.Relation("logging", remote_app_name=name, remote_units_data=units[name])
        for name in told
    ]
    world.related = [route(), auth(), *logs]
    out = world.run()
    targets = out.get_container("lifecycle").plan.log_targets
    assert [target.location for target in targets.values()] == ["http://loki-1:3100/push"]
    lost = ", ".join(f"loki/{number}" for number in range(len(BROKEN)))
    assert f"logging: {lost} sends" in out.unit_status.message
    assert out.unit_status.message.isprintable()
