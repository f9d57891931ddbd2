"""Is there an istiod, what are its settings, and is the model's namespace a member?"""

import dataclasses
import types

import pytest

from integrator_contract import pods
from istio_integrator.diagnosis.checks import istiod
from istio_integrator.membership import decision
from istio_integrator.messages import Said, Severity
from tests.unit.charm.diagnosis.objects import ALIVE

AWAY = {"name": "istio-system/istiod", "problem": "does not inject: refused", "command": ""}


@pytest.mark.parametrize(
    ("found", "said", "want", "severity"),
    [
        pytest.param(ALIVE, (), Said.ISTIOD_INJECTS, Severity.NOTE, id="alive"),
        pytest.param(
            dataclasses.replace(ALIVE, probed=False),
            (),
            Said.ISTIOD_NOT_TRIED,
            Severity.DOUBT,
            id="not-probed",
        ),
        pytest.param(
            dataclasses.replace(ALIVE, alive=False),
            [Said.ISTIOD_AWAY(**AWAY)],
            Said.ISTIOD_AWAY,
            Severity.BLOCKED,
            id="dead",
        ),
        pytest.param(
            None, [Said.INJECTOR_ABSENT()], Said.INJECTOR_ABSENT, Severity.BLOCKED, id="none"
        ),
    ],
)
def test_istiod_is_judged_by_its_answer(found, said, want, severity):
    (judged,) = istiod.judge(found, said, application="app")
    assert (judged.said, judged.severity) == (want, severity)


@pytest.mark.parametrize(
    ("decision", "wanted", "want"),
    [
        pytest.param(
            decision.Decision(joined=True), "namespace", Said.NAMESPACE_AS_WANTED, id="member"
        ),
        pytest.param(
            decision.Decision(problem=Said.CONTROLLER_MODEL()),
            "namespace",
            Said.CONTROLLER_MODEL,
            id="conflict",
        ),
        pytest.param(
            decision.Decision(labels={"istio-injection": "enabled"}, joined=True),
            "namespace",
            Said.NAMESPACE_OF_NO_MESH,
            id="not-written",
        ),
        pytest.param(
            decision.Decision(problem=Said.NOT_IN_MESH_YET(event="waiting")),
            "namespace",
            Said.NAMESPACE_NOT_JOINED,
            id="waiting",
        ),
        pytest.param(
            decision.Decision(), "namespace", Said.NAMESPACE_NOT_JOINED, id="nothing-to-join"
        ),
        pytest.param(decision.Decision(), "none", Said.NAMESPACE_AS_WANTED, id="not-wanted"),
    ],
)
def test_label_is_judged_by_the_decision_of_the_charm_itself(decision, wanted, want):
    marks = {"istio-injection": "enabled"}
    found = istiod.judge_namespace(
        decision, marks, membership=wanted, model="a", application="app"
    )
    assert found.said is want


OUTSIDE = dataclasses.replace(
    ALIVE,
    namespace="",
    service="",
    url="https://istiod.example:15017/inject",
    webhook_configuration="istiod-managed",
    has_settings=False,
)
INSTALLED = dataclasses.replace(OUTSIDE, remote_namespace="istio-system")
EVERY = pods.Ports(pods="", ports=(17070, 443))
CHARMS = pods.Ports(pods="app.kubernetes.io/name", ports=(17070,))
SOME = pods.Ports(pods="app=trainer", ports=(17070,))
OTHER = pods.Ports(pods="", ports=(5432,))


def judged_settings(found, *rules):
    facts = types.SimpleNamespace(
        mesh=found,
        config=types.SimpleNamespace(excluded_outbound_ports=rules),
        controller=types.SimpleNamespace(ports=(17070,)),
        application="app",
    )
    return list(istiod.settings(facts))


def test_settings_that_are_there_are_no_concern():
    assert judged_settings(ALIVE) == []


def test_namespace_that_is_not_known_is_told_by_the_option():
    (namespace, _) = judged_settings(OUTSIDE)
    assert namespace == Said.ISTIOD_NAMESPACE_UNKNOWN(
        injector="istiod-managed", url=OUTSIDE.url, application="app"
    )


@pytest.mark.parametrize("rules", [(), (SOME,), (OTHER,)])
def test_what_is_let_out_is_told_by_the_option(rules):
    (found,) = judged_settings(INSTALLED, *rules)
    assert found.said is Said.OUTBOUND_POLICY_UNKNOWN
    assert found.command == (
        "if so: juju config app "
        "excluded-outbound-ports='[{pods: app.kubernetes.io/name, ports: [17070]}]'"
    )


@pytest.mark.parametrize("rules", [(EVERY,), (CHARMS,), (OTHER, CHARMS)])
def test_what_the_operator_told_is_not_asked_again(rules):
    assert judged_settings(INSTALLED, *rules) == []


def test_what_is_not_captured_is_let_out():
    assert judged_settings(dataclasses.replace(INSTALLED, captures_outbound=False)) == []
