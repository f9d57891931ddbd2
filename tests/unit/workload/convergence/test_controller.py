"""How refusals of an eviction are taken; the rest runs against a real control plane."""

from sidecar_lifecycle.shell.convergence import controller
from sidecar_lifecycle.shell.kube import errors

from integrator_contract import refusals
from tests.unit.cases import cases

NOW = 1_000.0


BUDGETS = "This pod has more than one PodDisruptionBudget, which is not supported"
DENIED = 'admission webhook "a.team" denied the request: no'
AWAY = 'failed calling webhook "a.team": timed out'


def refused(code, message="", retry_after=None):
    return errors.StatusError(code, message=message, retry_after=retry_after)


@cases(
    ("error", "result", "reason", "seconds"),
    gone=(refused(404), "gone", None, None),
    another_pod_now=(refused(409), "replaced", None, None),
    budget=(refused(429, "budget"), "budget", "DisruptionBudget", controller.BUDGET_RETRY),
    budget_that_says_when=(refused(429, retry_after=3.0), "budget", "DisruptionBudget", 3),
    forbidden=(refused(403, "no right"), "forbidden", "Forbidden", controller.REFUSED_RETRY),
    two_budgets=(refused(500, BUDGETS), "refused", "EvictionRefused", controller.REFUSED_RETRY),
    webhook=(refused(403, DENIED), "refused", "EvictionRefused", controller.REFUSED_RETRY),
    webhook_away=(refused(500, AWAY), "refused", "EvictionRefused", controller.REFUSED_RETRY),
    unknown=(refused(503), "error", None, None),
)
def test_a_refusal_says_how_long_to_leave_the_workload_alone(error, result, reason, seconds):
    counted, hold = controller._refusal(error, NOW)

    assert counted == result
    assert (hold.reason if hold else None) == reason
    assert (hold.until - NOW if hold else None) == seconds
    author = refusals.read(error.code, error.message)
    assert (author.author if author else error.message) in (hold or error).message
