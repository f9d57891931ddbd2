"""How a diagnosis reads."""

import json

import ops
from hypothesis import given
from hypothesis import strategies as st

from diagnosis import finding

FINDINGS = st.builds(
    finding.Finding,
    st.sampled_from(list(finding.Level)),
    st.text(min_size=1),
    st.text(),
    st.sampled_from(["istiod", "old proxies", "clock"]),
)


@given(st.lists(FINDINGS))
def test_report_shows_every_finding_once_and_the_worst_first(findings):
    report = finding.Report(findings)
    heads = [line[0] for line in report.text().splitlines() if not line.startswith(" ")]
    order = "".join(level.value for level in finding.Level)
    assert sorted(heads, key=order.index) == heads
    assert len(heads) == len(findings)
    rows = json.loads(report.json())
    assert [row["seen"] for row in rows] == [each.seen for each in report._sorted()]
    assert report.is_broken == ("✗" in heads)


def test_report_says_what_to_do_below_what_was_seen():
    report = finding.Report(
        [
            finding.Finding(finding.Level.FINE, "it ticks", check="clock"),
            finding.Finding(finding.Level.BROKEN, "away\n now", "kubectl get pods", "istiod"),
        ]
    )
    assert report.text().splitlines() == [
        "✗ istiod  away now",
        "          → kubectl get pods",
        "✓ clock   it ticks",
    ]
    assert report.summary == "1 broken, 1 as it should be"


def test_status_becomes_a_finding_with_its_command_apart():
    blocked = ops.BlockedStatus("namespace a has both: run: kubectl label ns a istio.io/rev-")
    waiting = ops.WaitingStatus("waiting for istiod")
    found = finding.of_statuses([blocked, waiting, ops.ActiveStatus("all is well")], "juju status")
    assert [(each.level.value, each.seen, each.next) for each in found] == [
        ("✗", "namespace a has both", "kubectl label ns a istio.io/rev-"),
        ("!", "waiting for istiod", "juju status"),
        ("✓", "all is well", ""),
    ]


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=2)))
def test_long_list_names_a_few_and_counts_the_rest(names):
    text = finding.listed(names)
    known = list(dict.fromkeys(names))
    assert text.startswith(", ".join(known[:3]))
    assert (f"and {len(known) - 3} more" in text) == (len(known) > 3)
