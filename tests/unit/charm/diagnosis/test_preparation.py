"""Who prepares new pods, and how old certificates are."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import admission
import certificates
from diagnosis import preparation

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
WORKS, DOES_NOT = admission.Trial(works=True), admission.Trial(works=False, problem="unchanged")


@pytest.mark.parametrize(
    ("wanted", "policy", "webhook", "level", "words"),
    [
        ("auto", WORKS, DOES_NOT, "✓", "by the policy"),
        ("auto", DOES_NOT, WORKS, "✓", "by the webhook"),
        ("auto", DOES_NOT, DOES_NOT, "✗", "policy: unchanged; webhook: unchanged"),
        ("webhook", WORKS, DOES_NOT, "✗", "(webhook: unchanged)"),
        ("policy", WORKS, WORKS, "✓", "by the policy"),
    ],
)
def test_backend_is_the_one_whose_dry_run_pod_came_back_changed(
    wanted, policy, webhook, level, words
):
    trials = {"policy": policy, "webhook": webhook}
    (found,) = preparation.backend(wanted, trials, model="a")
    assert (found.level.value, words in found.seen) == (level, True)


@given(st.integers(-3, 120))
def test_certificate_is_judged_by_the_share_of_its_life_that_is_over(age):
    made = NOW - datetime.timedelta(days=age)
    material = certificates.decide(None, ["a.b.svc"], made)
    shown = preparation.Certificate(name="webhook", pem=material.leaf, next="rotate")
    (found,) = preparation.certificates([shown], now=NOW)
    # Valid from a day before it was made, for 91 days in all.
    share = (age + 1) / 91
    want = "✗" if not 0 <= share <= 1 else "!" if share > 0.9 else "✓"
    assert found.level.value == want
    assert (found.next == "rotate") == (want != "✓")


def test_certificate_that_is_none_is_broken():
    shown = preparation.Certificate(name="gateway", pem="no", next="look")
    (found,) = preparation.certificates([shown], now=NOW)
    assert (found.level.value, found.next) == ("✗", "look")


def test_api_servers_that_trust_another_authority_are_named():
    assert list(preparation.trust(["ours", "ours"], "ours", application="app")) == []
    (found,) = preparation.trust(["ours", "old"], "ours", application="app")
    assert found.next == "juju run app/leader rotate-certificates"
