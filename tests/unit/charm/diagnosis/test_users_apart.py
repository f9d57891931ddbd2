"""Whether a pod of one user can pass for another."""

import types

import pytest

from istio_integrator.diagnosis.checks import users_apart
from istio_integrator.kube import cluster
from tests.unit.charm.diagnosis.objects import ALIVE, obj
from tests.unit.charm.security.callers import NAME, sa, service

CLAIM = {"when": [{"key": "request.headers[kubeflow-userid]", "values": ["alice@example.com"]}]}


def sources(**source):
    return {**CLAIM, "from": [{"source": source}]}


@pytest.mark.parametrize(
    ("rules", "level"),
    [
        pytest.param([CLAIM], "!", id="anybody"),
        pytest.param([{**CLAIM, "from": []}], "!", id="no source"),
        pytest.param([sources(principals=["*"])], "!", id="whoever has a certificate"),
        pytest.param([sources(principals=[sa("gateway")]), CLAIM], "!", id="one of two"),
        pytest.param([sources(principals=[sa("gateway")])], "✓", id="the gateway"),
        pytest.param([sources(namespaces=["kubeflow"])], "✓", id="the model"),
        pytest.param([{"from": [{"source": {"namespaces": ["alice"]}}]}], "✓", id="no claim"),
        pytest.param(
            [{"when": [{"key": "request.headers[kubeflow-userid]", "notValues": ["*"]}]}],
            "✓",
            id="who claims nothing",
        ),
        pytest.param(
            [{"when": [{"key": "request.headers[x]", "values": ["a"]}]}], "✓", id="other header"
        ),
        pytest.param([5], "✓", id="no rule"),
    ],
)
def test_policy_that_believes_whoever_claims_is_found(rules, level):
    one = obj("AuthorizationPolicy", "alice", rules=rules)
    found = users_apart.judge_profiles([one], "remedy")
    assert (found.level.value, found.next) == (level, "remedy" if level == "!" else "")


def test_policy_that_denies_believes_nobody():
    one = obj("AuthorizationPolicy", "alice", rules=[CLAIM], action="DENY")
    found = users_apart.judge_profiles([one], "remedy")
    assert found.level.value == "✓"


SERVICES = [service("kfp-api", 8888), service("minio", 9000), service("mlmd", 8080)]


@pytest.mark.parametrize(
    ("covered", "named"),
    [
        (["kfp-api"], []),
        (["minio"], ["kfp-api"]),
        ([], ["kfp-api"]),
    ],
)
def test_service_that_believes_any_caller_is_named(covered, named):
    found = users_apart.believing(SERVICES, [frozenset({(NAME, each)}) for each in covered])
    assert [each.name for each in found] == named


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("off", "juju config app authorization=related"),
        ("related", "juju integrate kfp-api:service-mesh app:service-mesh"),
    ],
)
def test_remedy_is_the_option_or_the_relation(option, remedy):
    spec = {"selector": {NAME: "kfp-api"}, "ports": [{"port": 8888}]}
    api = obj("Service", "kubeflow", "kfp-api", **spec)
    facts = types.SimpleNamespace(
        mesh=ALIVE,
        profiles=["alice"],
        model="kubeflow",
        application="app",
        config=types.SimpleNamespace(authorization=option),
        manifests=types.SimpleNamespace(is_ours=lambda _: True),
        objects=lambda kind, _="": [api] if kind == cluster.SERVICE else [],
    )
    _, found = users_apart.users_apart(facts)
    assert (found.level.value, found.next) == ("!", remedy)
