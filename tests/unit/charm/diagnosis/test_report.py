"""How a diagnosis reads."""

import json

from hypothesis import given
from hypothesis import strategies as st

from istio_integrator import findings
from istio_integrator.diagnosis import report
from istio_integrator.messages import Said

FINDINGS = st.builds(
    findings.Finding,
    st.sampled_from(list(findings.Level)),
    st.text(min_size=1),
    st.text(),
    st.sampled_from(["istiod", "old proxies", "ticks"]),
)


@given(st.lists(FINDINGS))
def test_report_shows_every_finding_once_and_the_worst_first(found):
    whole = report.Report(found)
    heads = [line[0] for line in whole.text().splitlines() if not line.startswith(" ")]
    order = "".join(level.value for level in findings.Level)
    assert sorted(heads, key=order.index) == heads
    assert len(heads) == len(found)
    rows = json.loads(whole.json())
    assert [row["seen"] for row in rows] == [each.seen for each in whole._sorted()]
    assert whole.is_broken == ("✗" in heads)


def test_report_says_what_to_do_below_what_was_seen():
    whole = report.Report(
        [
            findings.Finding(findings.Level.FINE, "it ticks", check="ticks"),
            findings.Finding(findings.Level.BROKEN, "away\n now", "kubectl get pods", "istiod"),
        ]
    )
    assert whole.text().splitlines() == [
        "✗ istiod  away now",
        "          → kubectl get pods",
        "✓ ticks   it ticks",
    ]
    assert whole.summary == "1 broken, 1 as it should be"


def test_message_becomes_a_finding_with_its_command_apart():
    blocked = Said.NAMESPACE_OF_OTHER_MESH(
        namespace="a",
        labels="a label",
        command="kubectl label ns a istio.io/rev-",
        more="or set revision",
    )
    waiting = Said.ISTIOD_AWAY(name="istiod", problem="is away", command="")
    found = report.of_messages([blocked, waiting, Said.MESH(name="all is well")], "juju status")
    assert [(each.level.value, each.seen, each.next) for each in found] == [
        ("✗", "namespace a has a label; or set revision", "kubectl label ns a istio.io/rev-"),
        ("!", "istiod is away", "juju status"),
        ("✓", "all is well", ""),
    ]


def test_line_of_the_status_leads_to_its_symptom():
    said = [Said.NO_AUTHENTICATOR(), Said.CONTAINER_STARTING()]
    closed, starting = report.unsaid(said, [], application="istio-integrator")
    assert closed.symptoms == ("403-at-the-gateway",)
    assert starting.symptoms == ()


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=2)))
def test_long_list_names_a_few_and_counts_the_rest(names):
    text = report.listed(names)
    known = list(dict.fromkeys(names))
    assert text.startswith(", ".join(known[:3]))
    assert (f"and {len(known) - 3} more" in text) == (len(known) > 3)


def test_report_points_once_to_what_people_see_of_what_is_not_as_it_should_be():
    level = findings.Level
    whole = report.Report(
        [
            findings.Finding(level.BROKEN, "a", "run a", "one", symptoms=("x", "y")),
            findings.Finding(level.DOUBTFUL, "b", "run b", "two", symptoms=("x",)),
            findings.Finding(level.FINE, "c", "", "three", symptoms=("z",)),
        ]
    )
    assert [line.strip() for line in whole.text().splitlines()] == [
        "✗ one    a",
        "→ run a",
        "docs/how-to/symptoms.md#x, #y",
        "! two    b",
        "→ run b",
        "✓ three  c",
    ]
    assert [row["symptoms"] for row in json.loads(whole.json())] == [["x", "y"], ["x"], ["z"]]
