"""How refusals of an eviction are taken; the rest runs against a real control plane."""

import pytest
from sidecar_lifecycle.decide.convergence import memory
from sidecar_lifecycle.shell.convergence import controller
from sidecar_lifecycle.shell.kube import errors

from integrator_contract import refusals

NOW = 1_000.0


@pytest.mark.parametrize(
    ("error", "result", "reason", "until"),
    [
        pytest.param(errors.StatusError(404), "gone", None, None, id="gone"),
        pytest.param(errors.StatusError(409), "replaced", None, None, id="another-pod-now"),
        pytest.param(
            errors.StatusError(429, message="budget"),
            "budget",
            "DisruptionBudget",
            NOW + controller.BUDGET_RETRY,
            id="budget",
        ),
        pytest.param(
            errors.StatusError(429, retry_after=3.0),
            "budget",
            "DisruptionBudget",
            NOW + 3,
            id="budget-that-says-when",
        ),
        pytest.param(
            errors.StatusError(403, message="no right"),
            "forbidden",
            "Forbidden",
            NOW + controller.REFUSED_RETRY,
            id="forbidden",
        ),
        pytest.param(
            errors.StatusError(
                500,
                message="This pod has more than one PodDisruptionBudget, which is not supported",
            ),
            "refused",
            "EvictionRefused",
            NOW + controller.REFUSED_RETRY,
            id="two-budgets",
        ),
        pytest.param(
            errors.StatusError(403, message='admission webhook "a.team" denied the request: no'),
            "refused",
            "EvictionRefused",
            NOW + controller.REFUSED_RETRY,
            id="webhook",
        ),
        pytest.param(
            errors.StatusError(500, message='failed calling webhook "a.team": timed out'),
            "refused",
            "EvictionRefused",
            NOW + controller.REFUSED_RETRY,
            id="webhook-that-does-not-answer",
        ),
        pytest.param(errors.StatusError(503), "error", None, None, id="unknown"),
    ],
)
def test_a_refusal_says_how_long_to_leave_the_workload_alone(error, result, reason, until):
    counted, hold = controller._refusal(error, NOW)

    assert counted == result
    assert (hold.reason if hold else None) == reason
    assert (hold.until if hold else None) == until
    author = refusals.read(error.code, error.message)
    assert (author.author if author else error.message) in (hold or error).message


@pytest.mark.parametrize("keep", [True, False])
def test_a_refused_eviction_gives_its_slot_back_unless_it_may_have_happened(keep):
    current = memory.Round(
        pod="a-0", uid="u", known=("u",), was_ready=True, ready_before=1, since=NOW
    )
    hold = memory.Hold(reason="DisruptionBudget", message="m", since=NOW, until=NOW + 10)
    remembered = memory.Memory(rounds={"StatefulSet/a": current})

    after = controller._called_off(remembered, "StatefulSet/a", hold, keep=keep)

    assert bool(after.rounds) is keep
    assert after.holds == {"StatefulSet/a": hold}
