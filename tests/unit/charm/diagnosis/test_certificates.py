"""How old certificates are."""

import datetime

from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.admission import certificates as material
from istio_integrator.diagnosis.checks import certificates
from istio_integrator.messages import Said

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@given(st.integers(-3, 120))
def test_certificate_is_judged_by_the_share_of_its_life_that_is_over(age):
    made = NOW - datetime.timedelta(days=age)
    made_then = material.decide(None, ["a.b.svc"], made)
    found = certificates.judge("webhook", made_then.leaf, "rotate", now=NOW)
    # Valid from a day before it was made, for 91 days in all.
    share = (age + 1) / 91
    want = Said.CERTIFICATE_VALID
    if not 0 <= share <= 1:
        want = Said.CERTIFICATE_EARLY if share < 0 else Said.CERTIFICATE_ENDED
    elif share > 0.9:
        want = Said.CERTIFICATE_ENDS
    assert found.said is want


def test_certificate_that_is_none_is_broken():
    found = certificates.judge("gateway", "no", "look", now=NOW)
    assert found == Said.CERTIFICATE_UNREADABLE(owner="gateway", command="look")
