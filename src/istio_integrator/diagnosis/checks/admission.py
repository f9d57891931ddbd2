"""Who prepares new pods?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.admission import admission as backends
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding


@registry.check(
    "admission",
    place=80,
    question="who prepares new pods",
    reads="a dry-run pod for each backend",
    symptoms=("a-notebook-without-network-at-its-start",),
)
def admission(facts: Facts) -> Iterable[Finding]:
    """Try each backend with a dry-run pod."""
    # Nothing is written, so the name of an image, here an empty one, is not asked for.
    part = backends.Admission(facts.context, str)
    if not part.is_needed:
        return [findings.fine("in ambient mode new pods need nothing")]
    return judge(facts.config.admission, part.trials(), model=facts.model)


def judge(option: str, trials: Mapping[str, backends.Trial], *, model: str) -> Iterable[Finding]:
    """Judge who changes new pods.

    Args:
        option: The option `admission`.
        trials: What became of a dry-run pod for each backend.
        model: Where the webhook runs.
    """
    working = [name for name, trial in trials.items() if trial.works]
    if option != "auto":
        working = [name for name in working if name == option]
    if working:
        yield findings.fine(f"a dry-run pod came back prepared by the {working[0]}")
        return
    tried = {name: trial for name, trial in trials.items() if option in ("auto", name)}
    problems = "; ".join(f"{name}: {trial.problem}" for name, trial in tried.items())
    pods = f"{names.COMPONENT}={names.WEBHOOK_COMPONENT}"
    yield findings.broken(
        f"new pods are not prepared ({problems})", f"kubectl -n {model} get pods -l {pods}"
    )
