"""What of policies a ztunnel holds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.policies import layer4

FROM = [{"source": {"principals": ["cluster.local/ns/a/sa/b"]}}]
AT = [{"operation": {"ports": ["80"]}}]
GET = [{"operation": {"ports": ["80"], "methods": ["GET"], "paths": ["/a"]}}]
NAMELESS = [{"key": "request.headers[kubeflow-userid]", "notValues": ["*"]}]
WHERE = [{"key": "source.namespace", "values": ["a"]}]


def reduced(*rules):
    kept, says_more = layer4.reduced(rules)
    return list(kept), says_more


@pytest.mark.parametrize(
    ("rule", "kept", "says_more"),
    [
        pytest.param({"from": FROM, "to": AT}, {"from": FROM, "to": AT}, False, id="layer-4"),
        pytest.param({}, {}, False, id="everybody"),
        pytest.param({"from": FROM, "to": GET}, {"from": FROM, "to": AT}, True, id="path"),
        pytest.param({"to": AT, "when": NAMELESS}, {"to": AT}, True, id="header"),
        pytest.param({"to": AT, "when": WHERE}, {"to": AT, "when": WHERE}, False, id="where"),
        pytest.param(
            {"from": [*FROM, {"source": {"requestPrincipals": ["*"]}}], "to": AT},
            {"to": AT},
            True,
            id="tokens",
        ),
        pytest.param(
            {"from": FROM, "to": [*AT, {"operation": {"paths": ["/b"]}}]},
            {"from": FROM},
            True,
            id="any-port",
        ),
    ],
)
def test_what_ztunnel_can_hold_of_a_rule_is_kept(rule, kept, says_more):
    assert reduced(rule) == ([kept], says_more)


def test_probes_come_past_ztunnel_and_open_nothing():
    assert reduced({"from": FROM, "to": AT}, {"to": GET}) == ([{"from": FROM, "to": AT}], False)


def test_a_policy_of_probes_alone_shuts_nobody_out():
    assert reduced({"to": GET}) == ([], False)


SOURCES = st.sampled_from(
    [{"principals": ["p"]}, {"namespaces": ["n"]}, {"requestPrincipals": ["*"]}]
)
OPERATIONS = st.sampled_from([{"ports": ["80"]}, {"ports": ["80"], "methods": ["GET"]}])
RULES = st.fixed_dictionaries(
    {},
    optional={
        "from": st.lists(st.builds(lambda one: {"source": one}, SOURCES), min_size=1, max_size=2),
        "to": st.lists(
            st.builds(lambda one: {"operation": one}, OPERATIONS), min_size=1, max_size=2
        ),
        "when": st.sampled_from([NAMELESS, WHERE, [*NAMELESS, *WHERE]]),
    },
)


@given(st.lists(RULES, min_size=1, max_size=3))
def test_nothing_that_ztunnel_takes_for_nobody_is_written(rules):
    kept, _ = reduced(*rules)
    text = json.dumps(kept)
    for word in ("request", "methods", "paths"):
        assert word not in text
    assert reduced(*kept) == (kept, False)
