"""What of policies a ztunnel holds."""

import json

from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.policies.decide import decide
from tests.unit.cases import cases
from tests.unit.charm.security.callers import (
    asked,
    by_target,
    http,
    pod,
    policy,
    said,
    service,
)

FROM = [{"source": {"principals": ["cluster.local/ns/a/sa/b"]}}]
AT = [{"operation": {"ports": ["8888"]}}]
GET = [{"operation": {"ports": ["8888"], "methods": ["GET"], "paths": ["/a"]}}]
NAMELESS = [{"key": "request.headers[kubeflow-userid]", "notValues": ["*"]}]
WHERE = [{"key": "source.namespace", "values": ["a"]}]
TOKENS = [{"source": {"requestPrincipals": ["*"]}}]
STATED = {"from": [{"source": {"principals": ["cluster.local/ns/kubeflow/sa/ui"]}}], "to": AT}


def reduced(*rules):
    """Decide in ambient mode about a workload with these rules beside the stated one."""
    given = asked(
        service("store", 8888),
        pod("store", http(9, "/health")),
        said("store", policy("ui", "store")),
        others=[by_target(*rules, target="store")],
        is_ambient=True,
    )
    decision = decide(given)
    (found,) = decision.policies
    return [each for each in found.rules if each != STATED], bool(decision.beyond)


@cases(
    ("rule", "kept", "says_more"),
    nothing_more=({"to": [{"operation": {"ports": ["1"]}}]}, [], False),
    layer_4=({"to": AT, "when": WHERE}, [{"to": AT, "when": WHERE}], False),
    everybody=({}, [{"to": AT}], False),
    path=(
        {"from": FROM, "to": GET, "when": WHERE},
        [{"from": FROM, "to": AT, "when": WHERE}],
        True,
    ),
    header=({"to": AT, "when": NAMELESS}, [{"to": AT}], True),
    tokens=({"from": [*FROM, *TOKENS], "to": AT}, [{"to": AT}], True),
    the_kubelets_probe=({"to": GET}, [], False),
)
def test_what_ztunnel_can_hold_of_a_rule_is_kept(rule, kept, says_more):
    assert reduced(rule) == (kept, says_more)


def test_a_policy_of_probes_alone_shuts_nobody_out():
    probed = pod("store", http(9, "/health"))
    assert decide(asked(probed, mode="closed", is_ambient=True)).policies == ()


SOURCES = st.sampled_from(
    [{"principals": ["p"]}, {"namespaces": ["n"]}, {"requestPrincipals": ["*"]}]
)
OPERATIONS = st.sampled_from([{"ports": ["8888"]}, {"ports": ["8888"], "methods": ["GET"]}])
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
    assert not reduced(*kept)[1]
