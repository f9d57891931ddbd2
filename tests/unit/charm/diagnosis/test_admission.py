"""Who prepares new pods?"""

import pytest

from istio_integrator.admission import admission as backends
from istio_integrator.diagnosis.checks import admission

WORKS, DOES_NOT = backends.Trial(works=True), backends.Trial(works=False, problem="unchanged")


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
    (found,) = admission.judge(wanted, trials, model="a")
    assert (found.level.value, words in found.seen) == (level, True)
