"""How a diagnosis reads."""

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis import report
from istio_integrator.messages import Said, Severity


def message(severity, seen, command="", check="", symptoms=()):
    said = Said.CONFIG_INVALID(problem=seen)
    described = {"severity": severity, "check": check, "symptoms": symptoms}
    return dataclasses.replace(said, otherwise=command, **described)


MESSAGES = st.builds(
    message,
    st.sampled_from(list(Severity)),
    st.text(min_size=1),
    st.text(),
    st.sampled_from(["istiod", "old proxies", "ticks"]),
)


@given(st.lists(MESSAGES))
def test_report_shows_every_message_once_and_the_worst_first(found):
    whole = report.Report(found)
    heads = "".join(line[0] for line in whole.text().splitlines() if not line.startswith(" "))
    assert heads == "".join(sorted(heads, key="✗!✓".index))
    rows = json.loads(whole.json())
    assert sorted(row["seen"] for row in rows) == sorted(each.seen for each in found)
    assert len(heads) == len(rows)
    assert whole.is_broken == ("✗" in heads)


def test_report_says_what_to_do_below_what_was_seen():
    whole = report.Report(
        [
            message(Severity.NOTE, "it ticks", check="ticks"),
            message(Severity.BLOCKED, "away\n now", "kubectl get pods", "istiod"),
        ]
    )
    assert whole.text().splitlines() == [
        "✗ istiod  away now",
        "          → kubectl get pods",
        "✓ ticks   it ticks",
    ]
    assert whole.summary == "1 broken, 1 passed"


def test_line_of_the_status_leads_to_its_symptom():
    said = [Said.NO_AUTHENTICATOR(), Said.CONTAINER_STARTING(), Said.MESH(name="istiod")]
    closed, starting = report.unsaid(said, [], look="juju status")
    assert (closed.symptoms, closed.next) == (("403-at-the-gateway",), "juju status")
    assert starting.symptoms == ()
    assert list(report.unsaid(said, said, look="juju status")) == []


def test_report_points_once_to_each_symptom_of_a_problem():
    whole = report.Report(
        [
            message(Severity.BLOCKED, "a", "run a", "one", symptoms=("x", "y")),
            message(Severity.WAITING, "b", "run b", "two", symptoms=("x",)),
            message(Severity.NOTE, "c", "", "three", symptoms=("z",)),
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
    rows = json.loads(whole.json())
    assert [row["symptoms"] for row in rows] == [["x", "y"], ["x"], ["z"]]
    assert rows[0]["message"] == "CONFIG_INVALID"
