"""Is the model's namespace a member of the mesh?"""

import pytest

from istio_integrator.diagnosis.checks import istiod
from istio_integrator.membership import decision
from istio_integrator.messages import Said


@pytest.mark.parametrize(
    ("decision", "wanted", "level"),
    [
        pytest.param(decision.Decision(joined=True), "namespace", "✓", id="member"),
        pytest.param(
            decision.Decision(problem=Said.CONTROLLER_MODEL()),
            "namespace",
            "✗",
            id="conflict",
        ),
        pytest.param(
            decision.Decision(labels={"istio-injection": "enabled"}, joined=True),
            "namespace",
            "✗",
            id="not-written",
        ),
        pytest.param(
            decision.Decision(problem=Said.NOT_IN_MESH_YET(event="waiting")),
            "namespace",
            "!",
            id="waiting",
        ),
        pytest.param(decision.Decision(), "namespace", "!", id="nothing-to-join"),
        pytest.param(decision.Decision(), "none", "✓", id="not-wanted"),
    ],
)
def test_label_is_judged_by_the_decision_of_the_charm_itself(decision, wanted, level):
    marks = {"istio-injection": "enabled"}
    (found,) = istiod.judge_namespace(decision, marks, membership=wanted, model="a")
    assert found.level.value == level
