"""Does the webhook prepare new pods?"""

import types

import pytest

from istio_integrator.diagnosis.checks import admission


@pytest.mark.parametrize(
    ("is_needed", "problem", "level", "words"),
    [
        pytest.param(True, "", "✓", "the webhook prepared a dry-run pod", id="works"),
        pytest.param(False, "x", "✓", "not needed", id="not-needed"),
        pytest.param(
            True,
            "ResourceQuota small rejects pods",
            "✗",
            "new pods are not prepared: ResourceQuota small rejects pods",
            id="stuck",
        ),
    ],
)
def test_what_prepares_new_pods_is_told(is_needed, problem, level, words):
    part = types.SimpleNamespace(is_needed=is_needed)
    facts = types.SimpleNamespace(admission=part, admission_problem=problem, model="a")
    (found,) = admission.admission(facts)
    assert (found.level.value, words in found.seen) == (level, True)
