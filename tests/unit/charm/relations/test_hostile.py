"""Relation data and options of any structure: hooks pass, and each sender has its own trouble."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ops import testing

from istio_integrator import error_messages, messages
from istio_integrator.config import config
from istio_integrator.kube import errors
from istio_integrator.relations import (
    endpoints,
    ingress_route,
    kubeflow,
    observability,
    service_mesh,
)
from tests.unit.charm.ingress_world import auth, is_closed, route

DEEP = "[" * 2000 + "]" * 2000
LONG = "9" * 5000


def merge_bomb(levels=9, width=9):
    """Write few bytes that a reader which merges mappings turns into 43 million."""
    lines = ["a: &a {k: v}"]
    for one, next_one in zip("abcdefghij"[:levels], "bcdefghij"[:levels], strict=False):
        lines.append(f"{next_one}: &{next_one} {{<<: [{','.join([f'*{one}'] * width)}]}}")
    return "\n".join(lines)


def alias_bomb():
    lines = ["a: &a [v]"]
    for one, next_one in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{next_one}: &{next_one} [{','.join([f'*{one}'] * 9)}]")
    return "\n".join([*lines, "service: *i"])


def bag(data, versions="[v1]"):
    return {kubeflow.VERSIONS: versions, kubeflow.DATA: data}


HOSTILE = {
    "merge keys": (merge_bomb(), "has an alias or an anchor"),
    "aliases": (alias_bomb(), "has an alias or an anchor"),
    "an alias to itself": ("&a {x: *a}", "has an alias or an anchor"),
    "brackets": (DEEP, "nests more than 64"),
    "block brackets": ("- " * 2000, "nests more than 64"),
    "a long port": (f"{{service: a, port: {LONG}, prefix: /a}}", "a number of 5000 characters"),
    "a long hexadecimal port": (
        f"{{service: a, port: 0x{'f' * 4000}, prefix: /a}}",
        "a number of 4002 characters",
    ),
    "a tag": ("!!python/object/apply:os.system [id]", "has the tag"),
    "half a character": ('{service: "\\ud800"}', "has half a character"),
    "an escape sequence": (
        '{service: a, port: 1, prefix: "/\\e[2J"}',
        "prefix='/\\x1b[2J' is not a path",
    ),
    "many mistakes": (
        json.dumps({"service": 5, "port": 1, "prefix": 5, "namespace": 6, "rewrite": 7}),
        "and 1 more",
    ),
    "much": ("x" * 70000, "has 70000 characters"),
    "many values": (f"[{'1,' * 20_000}]", "has more than 20000 values"),
    "a long path": (f"{{service: a, port: 1, prefix: /{'a' * 5000}}}", "is longer than"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_request_is_refused_for_what_is_wrong_with_it(name):
    text, problem = HOSTILE[name]
    read, said = kubeflow.read_request(bag(text), kubeflow.INGRESS_MODELS)
    assert read is None
    assert problem in said


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["merge keys", "an escape sequence"])
def test_hostile_request_costs_its_application_alone_and_is_named(world, name):
    text, problem = HOSTILE[name]
    evil = testing.Relation("ingress", remote_app_name="evil", remote_app_data=bag(text))
    world.related = [route(), auth(), evil]
    said = world.status()
    assert isinstance(said, testing.BlockedStatus)
    assert f"ingress:{evil.id} evil: " in said.message
    assert problem in said.message
    assert said.message.isprintable()
    assert len(world.routes()) == 1
    assert world.guard() is not None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["merge keys", "a long port"])
def test_hostile_authentication_leaves_the_model_closed_and_is_named(world, name):
    text, problem = HOSTILE[name]
    evil = testing.Relation("ingress-auth", remote_app_name="evil", remote_app_data=bag(text))
    world.related = [route(), evil]
    said = world.status()
    assert isinstance(said, testing.BlockedStatus)
    assert "ingress is closed: ingress-auth of evil" in said.message
    assert problem in said.message
    assert is_closed(world.guard())


def authority(**data):
    data = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()
    }
    return testing.Relation("certificates", remote_app_name="ca", remote_app_data=data)


NO_CERTIFICATE = {"certificate_signing_request": "x", "certificate": "x", "ca": "x"}


@pytest.mark.parametrize(
    "data",
    [
        {"certificates": DEEP},
        {"certificates": "5"},
        {"certificates": [5, None, "x", {}, {"chain": 5}]},
        {"certificates": [NO_CERTIFICATE]},
        {"certificates": [{**NO_CERTIFICATE, "certificate_signing_request": ""}]},
        {"certificates": "x" * (2 << 20)},
        {"request_errors": DEEP},
        {"request_errors": [{"csr": 5, "error": "no"}]},
        {"capabilities": DEEP},
    ],
    ids=[
        "brackets",
        "number",
        "entries",
        "no certificate",
        "no request",
        "much",
        "error brackets",
        "error",
        "capability brackets",
    ],
)
def test_hostile_authority_costs_https_alone_and_is_named(world, data):
    world.config = {"hosts": "kf.example.com"}
    evil = authority(**data)
    world.related = [route(), auth(), evil]
    said = world.status()
    assert isinstance(said, testing.BlockedStatus)
    assert f"certificates:{evil.id} ca: " in said.message
    assert said.message.isprintable()
    assert len(world.routes()) == 1
    assert len(world.gateway()["spec"]["servers"]) == 1


@pytest.mark.parametrize(
    "broken",
    [
        DEEP,
        '{"url": "http://[::1"}',
        '{"url": "http://a/' + "x" * 5000 + '"}',
        '{"url": "http://a:port/"}',
        '{"url": "http:///"}',
        '{"url": "file://a/etc/passwd"}',
        '{"url": 3}',
        "\x00",
        '{"url": "http://a/\\u001b[2J"}',
    ],
)
def test_hostile_loki_costs_its_own_logs_alone_and_is_named(world, broken):
    units = {0: {"endpoint": broken}, 1: {"endpoint": '{"url": "http://loki-1:3100/push"}'}}
    logs = testing.Relation("logging", remote_app_name="loki", remote_units_data=units)
    world.related = [route(), auth(), logs]
    out = world.run()
    targets = out.get_container("lifecycle").plan.log_targets
    assert [target.location for target in targets.values()] == ["http://loki-1:3100/push"]
    assert "logging: loki/0 sends" in out.unit_status.message
    assert out.unit_status.message.isprintable()


def test_hostile_place_of_istio_is_left_out(world):
    hostile = {"root_namespace": "x\x1b[2J" * 1000}
    world.related = [
        testing.Relation("istio-metadata", remote_app_name="istio", remote_app_data=hostile)
    ]
    said = world.status()
    assert said.message.isprintable()
    assert len(said.message) < 500


# Structures that are nearly right, and those that are not at all.
WORDS = (
    ["service", "port", "prefix", "rewrite", "namespace", "allowed-request-headers", "url",
     "certificate_signing_request", "certificate", "chain", "csr", "error", "message", "<<", "x"]
)  # fmt: skip
KEYS = st.sampled_from(WORDS)
ODD = ["a", "/a", "http://a/", "v1", "v2", LONG, "x" * 3000, "\ud800", "\x1b[2J"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(ODD),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)
TEXTS = st.one_of(
    VALUES.map(json.dumps),
    VALUES.map(repr),
    st.text(alphabet="[]{}:,&*!<>-?|'\"\\ \n\t#%@`ax0159.~\x07", max_size=60),
    st.tuples(st.sampled_from("[{-&*!?'\""), st.integers(1, 3000)).map(
        lambda pair: pair[0] * pair[1]
    ),
    # Long ones are slow, and each has its row above.
    st.sampled_from([text for text, _ in HOSTILE.values() if len(text) < 30_000]),
)
"""What may stand in a bag or an option."""


NAMES = (
    ["pod-labels", "pod-annotations", "excluded-outbound-ports", "image-registries", "hosts",
     "gateway-service-annotations", "included-pods", "excluded-pods",
     "ignore-containers", "gateway-service", "revision"]
)  # fmt: skip
OPTIONS = st.sampled_from(NAMES)


@settings(deadline=None, max_examples=50)
@given(TEXTS, st.sampled_from(["[v1]", "[v1, v2]"]) | TEXTS)
@example(merge_bomb(), "[v1]")
@example(DEEP, DEEP)
def test_any_bag_is_read_or_refused(text, versions):
    for models in (kubeflow.INGRESS_MODELS, kubeflow.AUTH_MODELS):
        message, problem = kubeflow.read_request(bag(text, versions), models)
        assert not (message and problem)
        assert problem.isprintable()
        assert len(problem) < 500
    for key in (kubeflow.ADDRESS, kubeflow.APPLICATIONS, kubeflow.HEADERS):
        written = {kubeflow.ADDRESS: "http://a.b.svc", kubeflow.APPLICATIONS: "[]"}
        message, problem = kubeflow.read_forward_auth({**written, key: text})
        assert not (message and problem)
        assert problem.isprintable()
        assert len(problem) < 500
    config, problem = ingress_route.read(text)
    assert not (config and problem)
    assert problem.isprintable()
    stated = service_mesh.read(endpoints.Bag(3, "evil", {"policies": text}), model="kubeflow")
    assert all(each.isprintable() and len(each) < 500 for each in stated.problems)
    observability.push_url({"endpoint": text})


@settings(deadline=None, max_examples=50)
@given(OPTIONS, TEXTS)
@example("pod-annotations", "a: &a [*a]")
@example("excluded-outbound-ports", LONG)
@example("gateway-service-annotations", '{"a/b": "\\ud800"}')
def test_any_option_is_taken_or_refused_by_its_name(name, text):
    try:
        config.Config.load({name: text})
    except errors.ConfigError as error:
        said = error_messages.of_error(error, application="istio-integrator")
        status = said.status(application="istio-integrator")
        assert name in status.message
        assert status.message.isprintable()
        assert len(status.message) <= messages.LONGEST
