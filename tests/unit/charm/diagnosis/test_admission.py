"""Does the webhook prepare new pods?"""

import types

import pytest

from istio_integrator.diagnosis.checks import admission
from istio_integrator.messages import Said


@pytest.mark.parametrize(
    ("is_needed", "problem", "want"),
    [
        pytest.param(True, "", Said.ADMISSION_WORKS, id="works"),
        pytest.param(False, "x", Said.ADMISSION_OFF, id="not-needed"),
        pytest.param(True, "ResourceQuota small rejects pods", Said.PODS_NOT_PREPARED, id="stuck"),
    ],
)
def test_preparation_of_new_pods_is_named(is_needed, problem, want):
    part = types.SimpleNamespace(is_needed=is_needed)
    facts = types.SimpleNamespace(admission=part, admission_problem=problem, model="a")
    (found,) = admission.admission(facts)
    assert found.said is want
