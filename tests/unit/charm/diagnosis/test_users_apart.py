"""Whether a pod of one user can pass for another."""

import pytest

from istio_integrator.diagnosis.checks import users_apart
from tests.unit.charm.diagnosis.objects import obj
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
    (found,) = users_apart.judge_profiles([one], application="istio-integrator")
    assert found.level.value == level
    if level == "!":
        assert found.next == (
            "juju integrate kfp-profile-controller:service-mesh istio-integrator:service-mesh"
        )


def test_policy_that_denies_believes_nobody():
    one = obj("AuthorizationPolicy", "alice", rules=[CLAIM], action="DENY")
    (found,) = users_apart.judge_profiles([one], application="istio-integrator")
    assert found.level.value == "✓"


def judged(*covered, is_off=False):
    services = [service("kfp-api", 8888), service("minio", 9000), service("mlmd", 8080)]
    (found,) = users_apart.judge_model(
        services,
        [{NAME: each} for each in covered],
        is_off=is_off,
        application="istio-integrator",
    )
    return found


def test_services_with_named_callers_are_well():
    assert judged("kfp-api", "mlmd").level.value == "✓"


def test_service_that_believes_anybody_is_named_with_the_option_or_the_relation_that_helps():
    found = judged(is_off=True)
    assert "kfp-api, mlmd" in found.seen
    assert found.next == "juju config istio-integrator authorization=related"
    found = judged("mlmd")
    assert "kfp-api" in found.seen
    assert "mlmd" not in found.seen
    assert found.next == "juju integrate kfp-api:service-mesh istio-integrator:service-mesh"
